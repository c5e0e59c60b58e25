# The demo without a GPU, in the versions that were tested together:
#   docker build -t ghar .
#   docker run --rm -v "$PWD/runs:/work/runs" ghar train --quick
FROM python:3.11-slim
COPY . /opt/ghar
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu \
        --constraint /opt/ghar/constraints.txt '/opt/ghar[demo]' \
    && rm -r /opt/ghar && useradd --create-home user && mkdir /work && chown user /work
USER user
WORKDIR /work
ENTRYPOINT ["ghar"]
CMD ["--help"]
