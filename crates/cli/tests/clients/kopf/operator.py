"""An operator: keeps a ConfigMap for each Network, says so in the status, and frees what was given.

Prints a line for each thing it does, so that a test can follow it.
"""
import threading

import kopf

PRINTING = threading.Lock()


def say(text):
    # Handlers print from several threads, and print() writes the end of the line on its own.
    with PRINTING:
        print(text, flush=True)


@kopf.on.startup()
def configure(settings, **_):
    settings.persistence.finalizer = "samplecrd.k8s.io/kopf"
    settings.watching.server_timeout = 5
    say("started")


@kopf.index("samplecrd.k8s.io", "v1", "networks")
def by_cidr(spec, name, **_):
    return {spec["cidr"]: name}


@kopf.on.create("samplecrd.k8s.io", "v1", "networks", retries=5, backoff=0.1)
def create(body, spec, name, patch, retry, **_):
    if retry == 0 and name == "flaky":
        raise kopf.TemporaryError("not yet", delay=0.1)
    patch.status["cidr"] = spec["cidr"]
    kopf.event(body, type="Normal", reason="Given", message=f"it has {spec['cidr']}")
    say(f"create {name} {spec['cidr']} try {retry}")


@kopf.on.field("samplecrd.k8s.io", "v1", "networks", field="spec.gateway")
def gateway(old, new, name, patch, **_):
    patch.status["gateway"] = new
    say(f"gateway {name} {old} {new}")


@kopf.on.delete("samplecrd.k8s.io", "v1", "networks")
def delete(name, **_):
    say(f"delete {name}")


@kopf.on.event("", "v1", "configmaps", labels={"watched": kopf.PRESENT})
def config_map(event, name, **_):
    say(f"event {event['type']} {name}")


@kopf.daemon("samplecrd.k8s.io", "v1", "networks", cancellation_timeout=5)
async def daemon(stopped, name, **_):
    say(f"daemon {name} runs")
    await stopped.wait()
    say(f"daemon {name} stops")


@kopf.timer("samplecrd.k8s.io", "v1", "networks", interval=1, when=lambda name, **_: name == "timed")
def timer(name, by_cidr, **_):
    say(f"timer {name} {sorted(by_cidr.get('10.2.0.0/16', []))}")
