# For a CPU: docker build -t ob2i_tf .
# For a GPU: docker build --build-arg EXTRAS=cuda -t ob2i_tf .
FROM python:3.11-slim
ARG EXTRAS=analysis,deepsea,maze
WORKDIR /ob2i_tf
COPY . .
RUN python -m pip install --no-cache-dir -c constraints.txt ".[$EXTRAS]"
WORKDIR /data
ENTRYPOINT ["ob2i-tf"]
