"""The ``docker run`` command of a server in a container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serving.launch.addresses import ServerAddresses


@dataclass(frozen=True, slots=True)
class Container:
    """A container. ``mounts`` are ``host:container`` or ``host:container:ro``; ``gpus`` is the value of Docker's ``--gpus``."""

    image: str
    name: str
    mounts: tuple[str, ...] = ()
    gpus: str = "all"
    shm_size: str = "2g"


def docker_command(
    container: Container, addresses: ServerAddresses, command: Sequence[str], environment: Mapping[str, str]
) -> tuple[str, ...]:
    """``docker run`` of ``command``, with its ports published on ``addresses.host`` alone.

    ``command`` must listen on every address of the container; otherwise Docker cannot forward connections to it.
    """
    ports = (addresses.http_port, addresses.grpc_port, addresses.metrics_port)
    published = [word for port in ports for word in ("-p", f"{addresses.host}:{port}:{port}")]
    mounted = [word for mount in container.mounts for word in ("-v", mount)]
    set_variables = [word for name, value in environment.items() for word in ("-e", f"{name}={value}")]
    return (
        *("docker", "run", "--rm", "--init", "--name", container.name),
        *("--gpus", container.gpus, "--shm-size", container.shm_size),
        *("--ulimit", "memlock=-1", "--ulimit", "stack=67108864"),
        *published,
        *mounted,
        *set_variables,
        container.image,
        *command,
    )


def with_id_file(command: tuple[str, ...], id_file: str) -> tuple[str, ...]:
    """A ``docker_command`` that writes its container's id to ``id_file``, which must not exist yet."""
    return (*command[:2], "--cidfile", id_file, *command[2:])


def remove_command(container_id: str) -> tuple[str, ...]:
    """Ends a container whose ``docker run`` was killed; reports an error and does nothing where the container is gone."""
    return ("docker", "rm", "--force", container_id)
