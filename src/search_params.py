from icrl.__main__ import run  # see icrl/extensions/search/programs/search_params.py

if __name__ == "__main__":
    run("search_params", "search")
