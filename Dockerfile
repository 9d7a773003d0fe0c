# syntax=docker/dockerfile:1
# One image with all binaries: docker build --build-arg VERSION=0.1.0 --build-arg REVISION="$(git rev-parse HEAD)" .
FROM rust:1.95-slim-bookworm AS build
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates make python3 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --release --locked && helm/image/lay-out target/release /rootfs

# No shell, no package manager: what helm/image/files lists, and nothing else.
FROM scratch
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="presence" \
      org.opencontainers.image.description="Who is here: presence-core, presence-edge and presence" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /rootfs /
USER 65532:65532
# gRPC and admin of a core, WebSocket and admin of an edge.
EXPOSE 4701 4702 4711 4712
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/presence"]
