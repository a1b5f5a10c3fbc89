from icrl.__main__ import run  # see icrl/extensions/model_checks/programs/check_model.py

if __name__ == "__main__":
    run("check_model", "model_checks")
