//! The options about a front proxy, named as kube-apiserver's.

use clap::Args;
use setpoint::ServeOptions;
use setpoint::apiserver::RequestHeaderNames;
use std::path::PathBuf;

/// Which proxy may name users in headers.
#[derive(Debug, Args)]
pub(crate) struct FrontProxyOptions {
    /// The authorities (PEM) of the client certificates of a front proxy that authenticates users
    /// and names them in headers. Reloaded while the server runs. Without it no headers count.
    #[arg(long, value_name = "FILE")]
    requestheader_client_ca_file: Option<PathBuf>,
    /// Common names that the proxy's certificate may have, separated by commas. Default: any.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    requestheader_allowed_names: Vec<String>,
    /// Headers with the user's name; the first one with a value counts. `X-Remote-User` is common.
    #[arg(long, value_name = "HEADERS", value_delimiter = ',')]
    requestheader_username_headers: Vec<String>,
    /// Headers with the user's uid. `X-Remote-Uid` is common.
    #[arg(long, value_name = "HEADERS", value_delimiter = ',')]
    requestheader_uid_headers: Vec<String>,
    /// Headers with the user's groups. `X-Remote-Group` is common.
    #[arg(long, value_name = "HEADERS", value_delimiter = ',')]
    requestheader_group_headers: Vec<String>,
    /// What headers with extra values begin with. `X-Remote-Extra-` is common.
    #[arg(long, value_name = "PREFIXES", value_delimiter = ',')]
    requestheader_extra_headers_prefix: Vec<String>,
}

impl FrontProxyOptions {
    pub(crate) fn apply(self, options: ServeOptions) -> ServeOptions {
        let Some(path) = self.requestheader_client_ca_file else { return options };
        let names = RequestHeaderNames {
            allowed_names: self.requestheader_allowed_names,
            username_headers: self.requestheader_username_headers,
            uid_headers: self.requestheader_uid_headers,
            group_headers: self.requestheader_group_headers,
            extra_headers_prefix: self.requestheader_extra_headers_prefix,
        };
        options.front_proxy(path, names)
    }
}
