"""Serves Keystone, OpenStack's identity service, on loopback, over SQLite.

    serve_keystone.py FOLDER NEUTRON_URL [PORT] [--with-parent]

There are two users, both with the password `secret`: `neutron`, who checks tokens for Neutron, and
`me`, a member of the project `demo`. The catalogue has Neutron at NEUTRON_URL, region `one`. The
line `ready PORT CREDENTIAL` follows on standard output: CREDENTIAL is the id of an application
credential of `me`, whose secret is `secret`, too. Without a port, the system chooses one. With
`--with-parent` the server ends when its standard input does.

Tokens, users and the catalogue are Keystone's own. FOLDER must be new.
"""

import argparse
import os
import pathlib
import sys
import threading

CONFIGURATION = """
[DEFAULT]
public_endpoint = {url}
[database]
connection = sqlite:///{folder}/keystone.db
[fernet_tokens]
key_repository = {folder}/fernet
[fernet_receipts]
key_repository = {folder}/receipts
[credential]
key_repository = {folder}/credential
[cache]
enabled = false
[identity]
password_hash_rounds = 4
[oslo_messaging_notifications]
driver = noop
"""

PASSWORD = "secret"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("neutron_url")
    parser.add_argument("port", type=int, nargs="?", default=0)
    parser.add_argument("--with-parent", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)

    import waitress

    late = Late()
    served = waitress.create_server(late, host="127.0.0.1", port=arguments.port, threads=1)
    url = f"http://127.0.0.1:{served.effective_port}"
    late.application = keystone(folder, url)
    threading.Thread(target=served.run, daemon=True).start()
    credential = populate(f"{url}/v3", arguments.neutron_url)
    print(f"ready {served.effective_port} {credential}", flush=True)
    if arguments.with_parent:
        sys.stdin.read()
    else:
        threading.Event().wait()
    os._exit(0)


class Late:
    """An application that is set once the port is known."""

    application = None

    def __call__(self, environ, start_response):
        return self.application(environ, start_response)


def keystone(folder, url):
    """Keystone's application, with the users and endpoints of its own bootstrap."""
    configuration = folder / "keystone.conf"
    configuration.write_text(CONFIGURATION.format(folder=folder, url=url))
    # Keystone reads the command line, too.
    sys.argv = ["keystone"]
    os.environ["OS_KEYSTONE_CONFIG_FILES"] = str(configuration)
    from cryptography.fernet import Fernet
    from keystone.cmd import bootstrap
    from keystone.common import sql
    from keystone.server import wsgi

    for repository in ["fernet", "receipts", "credential"]:
        keys = folder / repository
        keys.mkdir(mode=0o700)
        for name in ["0", "1"]:
            (keys / name).write_bytes(Fernet.generate_key())
            (keys / name).chmod(0o600)
    application = wsgi.initialize_public_application()
    # The tables are made from the models, as Keystone's own tests make them.
    with sql.session_for_write() as session:
        sql.ModelBase.metadata.create_all(session.get_bind())
    # The application has loaded what the bootstrap would load again.
    bootstrap.backends.load_backends = dict
    made = bootstrap.Bootstrapper()
    made.admin_username = made.project_name = "admin"
    made.admin_password = PASSWORD
    made.admin_role_name = "admin"
    made.service_name = "keystone"
    made.region_id = "one"
    made.public_url = made.internal_url = made.admin_url = f"{url}/v3"
    made.immutable_roles = True
    made.bootstrap()
    return application


def populate(url, neutron):
    """Makes the users, Neutron's endpoint and the application credential, over HTTP."""
    from keystoneauth1 import session
    from keystoneauth1.identity import v3
    from keystoneclient.v3 import client

    def connect(user, project):
        auth = v3.Password(
            auth_url=url,
            username=user,
            password=PASSWORD,
            project_name=project,
            user_domain_name="Default",
            project_domain_name="Default",
        )
        return client.Client(session=session.Session(auth=auth), endpoint_override=url)

    admin = connect("admin", "admin")
    roles = {role.name: role for role in admin.roles.list()}
    for user, project, role in [("neutron", "service", "admin"), ("me", "demo", "member")]:
        project = admin.projects.create(project, domain="default")
        user = admin.users.create(user, domain="default", password=PASSWORD)
        admin.roles.grant(roles[role], user=user, project=project)
    network = admin.services.create("neutron", type="network")
    admin.endpoints.create(network, neutron, interface="public", region="one")
    me = connect("me", "demo")
    return me.application_credentials.create("setpoint", secret=PASSWORD).id


if __name__ == "__main__":
    main()
