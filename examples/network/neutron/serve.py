"""Serves Neutron, OpenStack's network service, on loopback: without Keystone, over SQLite.

    serve.py FOLDER [PORT] [--with-parent]

FOLDER keeps the database, so that a restart finds what an earlier run has made. Without a port,
the system chooses one. The line `ready PORT` follows on standard output. With `--with-parent` the
server ends when its standard input does.

The API, the database and its rules are Neutron's own. No agent runs and no packet flows: the only
mechanism driver writes a log. Requests are served one at a time, because SQLite has one writer.
"""

import os
import pathlib
import sys
import threading

CONFIGURATION = """
[DEFAULT]
auth_strategy = noauth
core_plugin = ml2
service_plugins =
transport_url = fake://
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
dhcp_agent_notification = false
state_path = {folder}
api_paste_config = {paste}
[database]
connection = sqlite:///{folder}/neutron.db
[oslo_concurrency]
lock_path = {folder}/lock
[oslo_messaging_notifications]
driver = noop
[ml2]
type_drivers = local
tenant_network_types = local
mechanism_drivers = logger
extension_drivers =
[securitygroup]
enable_security_group = false
"""


def main():
    arguments = [word for word in sys.argv[1:] if word != "--with-parent"]
    with_parent = "--with-parent" in sys.argv
    folder = pathlib.Path(arguments[0]).resolve()
    port = int(arguments[1]) if len(arguments) > 1 else 0
    # Neutron reads the command line, too.
    sys.argv = ["neutron"]
    folder.mkdir(parents=True, exist_ok=True)
    paste = pathlib.Path(sys.prefix) / "etc/neutron/api-paste.ini"
    configuration = folder / "neutron.conf"
    configuration.write_text(CONFIGURATION.format(folder=folder, paste=paste))
    os.environ["OS_NEUTRON_CONFIG_FILES"] = str(configuration)

    import waitress
    from neutron import server
    from neutron.db.migration.models import head
    from neutron.server import api
    from neutron_lib.db import api as database

    def application():
        # The migrations need MySQL or PostgreSQL. The tables are made from the models, as
        # Neutron's own tests make them.
        head.get_metadata().create_all(database.CONTEXT_WRITER.get_engine())
        return api.api_server()

    served = waitress.create_server(
        server.boot_server(application), host="127.0.0.1", port=port, threads=1
    )
    if with_parent:
        threading.Thread(target=end_with_parent, daemon=True).start()
    print(f"ready {served.effective_port}", flush=True)
    served.run()


def end_with_parent():
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
