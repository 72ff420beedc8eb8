# docker build -t xdesc .                                   CPU
# docker build -t xdesc --build-arg JAX="jax[cuda13]" .     NVIDIA GPUs (run with --gpus all)
# docker run --rm -v "$PWD":/work xdesc translate IN.h5 OUT.h5 --target sift --model opencv
ARG PYTHON=3.12
FROM python:${PYTHON}-slim AS wheel
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim
ARG JAX=jax
# What OpenCV and pycolmap link to, headless.
RUN apt-get update \
 && apt-get install -y --no-install-recommends libgl1 libglib2.0-0 libgomp1 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=wheel /wheels /wheels
RUN pip install --no-cache-dir "$(echo /wheels/xdesc_jax-*.whl)[all,onnx]" "${JAX}"
WORKDIR /work
ENTRYPOINT ["xdesc"]
CMD ["--help"]
