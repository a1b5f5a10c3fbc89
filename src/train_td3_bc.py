from icrl.__main__ import run  # see icrl/extensions/td3_bc/programs/train_td3_bc.py

if __name__ == "__main__":
    run("train_td3_bc", "td3_bc")
