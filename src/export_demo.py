from icrl.__main__ import run  # see icrl/extensions/demo/programs/export_demo.py

if __name__ == "__main__":
    run("export_demo", "demo")
