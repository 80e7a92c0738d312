# docker build --target gate -t fractus-gate .             the gate alone, 120 MB
# docker build --build-arg POD=your/training-image -t pod .  your image, behind the gate
#
# The pod's root file system and its artifacts belong read-only (docker run --read-only, -v ...:ro): what the gate has
# read must be what the program loads.
ARG POD=debian:bookworm-slim

FROM debian:bookworm-slim AS build
WORKDIR /fractus-verify
COPY . .
# The builder's processor is not the pod's.
ENV FRACTUS_MARCH=x86-64-v3
RUN ./fractus-verify list >/dev/null && strip build/release/bin/fractus-verify

FROM debian:bookworm-slim AS gate
RUN apt-get update && apt-get install -y --no-install-recommends libfmt9 libssl3 libzip4 && rm -rf /var/lib/apt/lists/*
COPY --from=build /fractus-verify/build/release/bin/fractus-verify /usr/local/bin/
ENTRYPOINT ["fractus-verify", "gate"]

# For images of Debian 12 and what is made from it; another one needs a build stage of its own release.
FROM ${POD} AS pod
RUN apt-get update && apt-get install -y --no-install-recommends bash libfmt9 libssl3 libzip4 && rm -rf /var/lib/apt/lists/*
COPY --from=build /fractus-verify/build/release/bin/fractus-verify /usr/local/bin/
COPY ci/pod /usr/local/bin/fractus-pod
ENTRYPOINT ["fractus-pod"]
