"""Serves Neutron, OpenStack's network service, on loopback, over SQLite.

    serve.py FOLDER [PORT] [--keystone URL] [--with-parent]

FOLDER keeps the database, so that a restart finds what an earlier run has made. Without a port,
the system chooses one. The line `ready PORT` follows on standard output. With `--with-parent` the
server ends when its standard input does. Tokens are checked by the Keystone of `--keystone`
(`serve_keystone.py`); without it, nobody logs in.

The API, the database and its rules are Neutron's own. No agent runs and no packet flows: the only
mechanism driver writes a log. Requests are served one at a time, because SQLite has one writer.
"""

import argparse
import os
import pathlib
import sys
import threading

CONFIGURATION = """
[DEFAULT]
auth_strategy = {strategy}
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
[keystone_authtoken]
auth_type = password
auth_url = {keystone}
www_authenticate_uri = {keystone}
username = neutron
password = secret
project_name = service
user_domain_name = Default
project_domain_name = Default
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("port", type=int, nargs="?", default=0)
    parser.add_argument("--keystone")
    parser.add_argument("--with-parent", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    # Neutron reads the command line, too.
    sys.argv = ["neutron"]
    folder.mkdir(parents=True, exist_ok=True)
    paste = pathlib.Path(sys.prefix) / "etc/neutron/api-paste.ini"
    configuration = folder / "neutron.conf"
    strategy = "keystone" if arguments.keystone else "noauth"
    configuration.write_text(
        CONFIGURATION.format(
            folder=folder, paste=paste, strategy=strategy, keystone=arguments.keystone
        )
    )
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
        server.boot_server(application), host="127.0.0.1", port=arguments.port, threads=1
    )
    if arguments.with_parent:
        threading.Thread(target=end_with_parent, daemon=True).start()
    print(f"ready {served.effective_port}", flush=True)
    served.run()


def end_with_parent():
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
