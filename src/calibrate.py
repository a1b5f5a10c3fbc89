from icrl.__main__ import run  # see icrl/extensions/calibration/programs/calibrate.py

if __name__ == "__main__":
    run("calibrate", "calibration")
