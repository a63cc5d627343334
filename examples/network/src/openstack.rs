//! How the command line says which cloud to use: the names of the OpenStack client, as options or
//! as environment variables. An option has precedence.

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use network::backend::NeutronBackend;
use network::backend::neutron::{Access, CHECK_PERIOD, Credential, Dial, Secret};
use setpoint::object::seed;
use setpoint::prelude::Clock;
use std::path::PathBuf;
use std::time::Duration;

/// Options of `--backend neutron`.
#[derive(Debug, Args)]
#[command(next_help_heading = "OpenStack (--backend neutron)")]
pub(crate) struct OpenStackArgs {
    /// How to log in; OS_AUTH_TYPE. `none`: Neutron without Keystone, which needs
    /// `--os-network-endpoint` and `--os-project-id`.
    #[arg(long, value_enum)]
    os_auth_type: Option<AuthType>,
    /// Keystone's URL; OS_AUTH_URL.
    #[arg(long, value_name = "URL")]
    os_auth_url: Option<String>,
    /// The user; OS_USERNAME.
    #[arg(long, value_name = "NAME")]
    os_username: Option<String>,
    /// The user's domain, `Default` if nothing says otherwise; OS_USER_DOMAIN_NAME.
    #[arg(long, value_name = "NAME")]
    os_user_domain_name: Option<String>,
    /// A file whose first line is the password, read at each login; or the password itself in
    /// OS_PASSWORD.
    #[arg(long, value_name = "FILE")]
    os_password_file: Option<PathBuf>,
    /// The project; OS_PROJECT_NAME.
    #[arg(long, value_name = "NAME")]
    os_project_name: Option<String>,
    /// The project's domain, `Default` if nothing says otherwise; OS_PROJECT_DOMAIN_NAME.
    #[arg(long, value_name = "NAME")]
    os_project_domain_name: Option<String>,
    /// The project without Keystone; OS_PROJECT_ID.
    #[arg(long, value_name = "ID")]
    os_project_id: Option<String>,
    /// An application credential; OS_APPLICATION_CREDENTIAL_ID.
    #[arg(long, value_name = "ID")]
    os_application_credential_id: Option<String>,
    /// A file whose first line is its secret, read at each login; or the secret itself in
    /// OS_APPLICATION_CREDENTIAL_SECRET.
    #[arg(long, value_name = "FILE")]
    os_application_credential_secret_file: Option<PathBuf>,
    /// The region, the first in the catalogue if nothing says otherwise; OS_REGION_NAME.
    #[arg(long, value_name = "NAME")]
    os_region_name: Option<String>,
    /// The kind of endpoint: public, internal or admin; OS_INTERFACE.
    #[arg(long, value_name = "INTERFACE")]
    os_interface: Option<String>,
    /// Neutron's URL, in place of the catalogue's; OS_NETWORK_ENDPOINT_OVERRIDE.
    #[arg(long, value_name = "URL")]
    os_network_endpoint: Option<String>,
    /// The authorities that sign the servers' certificates, in PEM; OS_CACERT.
    #[arg(long, value_name = "FILE")]
    os_cacert: Option<PathBuf>,
    /// How often each network is compared with the cloud, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = CHECK_PERIOD.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..))]
    check_period: u64,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AuthType {
    /// A user's password.
    Password,
    /// An application credential.
    #[value(name = "v3applicationcredential")]
    ApplicationCredential,
    /// No Keystone.
    None,
}

impl OpenStackArgs {
    /// The back end that the options name. Call it within a tokio runtime.
    pub(crate) fn backend(&self) -> Result<NeutronBackend> {
        let ca_file = self.os_cacert.clone().or_else(|| variable("OS_CACERT").map(PathBuf::from));
        if let Some(ca_file) = &ca_file
            && !ca_file.is_file()
        {
            bail!("the CA file {} is not there", ca_file.display());
        }
        let access = self.access()?;
        let backend =
            NeutronBackend::new(access, Dial::tcp(ca_file), Clock::wall(), seed::from_entropy())?;
        Ok(backend.check_every(Duration::from_secs(self.check_period)))
    }

    fn access(&self) -> Result<Access> {
        let endpoint = given(&self.os_network_endpoint, "OS_NETWORK_ENDPOINT_OVERRIDE");
        let auth_type = match (self.os_auth_type, variable("OS_AUTH_TYPE")) {
            (Some(auth_type), _) => auth_type,
            (None, None) => AuthType::Password,
            (None, Some(text)) => match AuthType::from_str(&text, true) {
                Ok(auth_type) => auth_type,
                Err(_) => {
                    bail!("OS_AUTH_TYPE is {text:?}: use password, v3applicationcredential or none")
                }
            },
        };
        let credential = match auth_type {
            AuthType::None => {
                let endpoint = endpoint.context(needs("--os-network-endpoint"))?;
                let project = given(&self.os_project_id, "OS_PROJECT_ID");
                let project = project.context(needs("--os-project-id"))?;
                return Ok(Access::NoAuth { endpoint, project });
            }
            AuthType::Password => self.password()?,
            AuthType::ApplicationCredential => {
                let id = given(&self.os_application_credential_id, "OS_APPLICATION_CREDENTIAL_ID");
                let id = id.context(needs("--os-application-credential-id"))?;
                let file = self.os_application_credential_secret_file.clone();
                let secret = secret(file, "OS_APPLICATION_CREDENTIAL_SECRET");
                let secret = secret.context(needs("--os-application-credential-secret-file"))?;
                Credential::Application { id, secret }
            }
        };
        let url = given(&self.os_auth_url, "OS_AUTH_URL").context(needs("--os-auth-url"))?;
        let region = given(&self.os_region_name, "OS_REGION_NAME");
        let interface = given(&self.os_interface, "OS_INTERFACE");
        let interface = interface.unwrap_or_else(|| "public".to_owned());
        Ok(Access::Keystone { url, credential, region, interface, endpoint })
    }

    fn password(&self) -> Result<Credential> {
        let domain = |option, name| given(option, name).unwrap_or_else(|| "Default".to_owned());
        let user = given(&self.os_username, "OS_USERNAME").context(needs("--os-username"))?;
        let project = given(&self.os_project_name, "OS_PROJECT_NAME");
        let password = secret(self.os_password_file.clone(), "OS_PASSWORD");
        Ok(Credential::Password {
            user,
            user_domain: domain(&self.os_user_domain_name, "OS_USER_DOMAIN_NAME"),
            password: password.context(needs("--os-password-file"))?,
            project: project.context(needs("--os-project-name"))?,
            project_domain: domain(&self.os_project_domain_name, "OS_PROJECT_DOMAIN_NAME"),
        })
    }
}

fn given(option: &Option<String>, name: &str) -> Option<String> {
    option.clone().or_else(|| variable(name))
}

fn secret(file: Option<PathBuf>, name: &str) -> Option<Secret> {
    file.map(Secret::File).or_else(|| variable(name).map(Secret::Text))
}

/// An environment variable; an empty one counts as missing.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn needs(option: &str) -> String {
    format!("--backend neutron needs {option}, or its environment variable: see --help")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        openstack: OpenStackArgs,
    }

    fn access(options: &str) -> Result<Access> {
        let words = std::iter::once("network").chain(options.split_whitespace());
        Cli::try_parse_from(words)?.openstack.access()
    }

    #[test]
    fn options_say_how_to_log_in() {
        let none = "--os-auth-type none --os-network-endpoint http://n --os-project-id p";
        assert!(matches!(access(none).unwrap(), Access::NoAuth { project, .. } if project == "p"));
        let application = "--os-auth-type v3applicationcredential --os-auth-url http://k \
            --os-application-credential-id c --os-application-credential-secret-file s";
        let Access::Keystone { credential: Credential::Application { id, .. }, interface, .. } =
            access(application).unwrap()
        else {
            panic!("an application credential")
        };
        assert_eq!((&*id, &*interface), ("c", "public"));
        let password = "--os-auth-url http://k --os-username me --os-project-name demo \
            --os-password-file s --os-region-name one";
        let Access::Keystone { credential, region, .. } = access(password).unwrap() else {
            panic!("a password")
        };
        assert_eq!(region.as_deref(), Some("one"));
        let Credential::Password { user_domain, project, .. } = credential else {
            panic!("a password")
        };
        assert_eq!((&*user_domain, &*project), ("Default", "demo"));
        for (options, missing) in [
            ("--os-auth-type none", "--os-network-endpoint"),
            ("--os-auth-url http://k", "--os-username"),
            (&password.replace("--os-auth-url http://k", ""), "--os-auth-url"),
        ] {
            let error = access(options).unwrap_err().to_string();
            assert!(error.contains(missing), "{options}: {error}");
        }
    }
}
