# `make run` and `make test` in a container, without a GPU:
#   docker build --tag icrl .
#   docker run --rm --volume "$PWD/out:/icrl/out" icrl make run ARGS="experiment=search root=out"
#   docker run --rm icrl make test
FROM python:3.12-slim
RUN apt-get update && apt-get install --yes --no-install-recommends git make && rm -rf /var/lib/apt/lists/*
WORKDIR /icrl
COPY . .
RUN make .venv/dev.stamp
CMD ["make", "run"]
