//! The file of `--tracing-config-file`: `TracingConfiguration` of `apiserver.config.k8s.io`.

use serde::Deserialize;
use setpoint_configuration::{DocumentError, Kind};
use setpoint_object::field;
use setpoint_small_file::SmallFileError;
use setpoint_spans::Sampling;
use std::path::{Path, PathBuf};

/// Maximum size of a configuration file in bytes: 1 MiB.
pub const FILE_BYTES_MAX: usize = 1 << 20;
/// Where a collector on the same machine listens, by the standard.
pub const DEFAULT_ENDPOINT: &str = "localhost:4317";

const KIND: Kind = Kind {
    name: "TracingConfiguration",
    versions: &[
        "apiserver.config.k8s.io/v1",
        "apiserver.config.k8s.io/v1beta1",
        "apiserver.config.k8s.io/v1alpha1",
    ],
};
/// All traces.
const MILLION: i64 = 1_000_000;

/// Why a configuration is refused, in kube-apiserver's words where it has some.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TracingConfigError {
    /// There is no such file.
    #[error("tracing-config-file {} does not exist", .0.display())]
    Missing(PathBuf),
    /// The file cannot be read.
    #[error("failed to read tracing config: unable to read tracing configuration from {:?}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// More than [`FILE_BYTES_MAX`] bytes.
    #[error("failed to read tracing config: more than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    /// Not YAML or JSON, another kind, unknown members, or members of another type.
    #[error("failed to read tracing config: unable to decode tracing configuration data: {0}")]
    Document(#[from] DocumentError),
    /// Invalid values.
    #[error("failed to validate tracing configuration: {}", field::aggregate(.0))]
    Invalid(Vec<field::Error>),
}

/// Where spans go, and how many traces are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracingConfig {
    /// The collector.
    pub endpoint: Endpoint,
    /// The traces without a trusted parent that are recorded.
    pub sampling: Sampling,
}

/// The address of a collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// `host:port` over TCP.
    Tcp(String),
    /// A Unix socket: a path, or an abstract name that begins with a zero byte.
    Unix(PathBuf),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Document {
    endpoint: Option<String>,
    sampling_rate_per_million: Option<i32>,
}

impl TracingConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or as [`parse`](Self::parse).
    pub fn load(path: &Path) -> Result<Self, TracingConfigError> {
        let document = setpoint_small_file::read(path, FILE_BYTES_MAX);
        Self::parse(&document.map_err(|error| match error {
            SmallFileError::TooLong { .. } => TracingConfigError::TooLarge,
            error if error.is_missing() => TracingConfigError::Missing(path.to_owned()),
            SmallFileError::Read { path, source } => TracingConfigError::Read { path, source },
        })?)
    }

    /// Reads a document in YAML or JSON.
    ///
    /// # Errors
    ///
    /// It has another kind, unknown members, members of another type, or invalid values.
    pub fn parse(document: &[u8]) -> Result<Self, TracingConfigError> {
        let document: Document = KIND.parse(document)?;
        document.validate().map_err(TracingConfigError::Invalid)
    }
}

impl Document {
    fn validate(self) -> Result<TracingConfig, Vec<field::Error>> {
        let mut errors = Vec::new();
        let rate = i64::from(self.sampling_rate_per_million.unwrap_or(0));
        let wrong = match rate {
            ..0 => Some("sampling rate must be positive"),
            _ if rate > MILLION => {
                Some("sampling rate per million must be less than or equal to one million")
            }
            _ => None,
        };
        if let Some(wrong) = wrong {
            let path = field::Path::new("samplingRatePerMillion");
            errors.push(field::Error::invalid(path, &rate.into(), wrong));
        }
        let endpoint = match self.endpoint.as_deref() {
            None | Some("") => Ok(Endpoint::Tcp(DEFAULT_ENDPOINT.to_owned())),
            Some(text) => Endpoint::parse(text),
        };
        let endpoint = endpoint.map_err(|error| errors.push(error));
        match endpoint {
            Ok(endpoint) if errors.is_empty() => Ok(TracingConfig {
                endpoint,
                sampling: Sampling::per_million(u32::try_from(rate).unwrap_or(0)),
            }),
            _ => Err(errors),
        }
    }
}

impl Endpoint {
    /// Parses `host:port`, `dns:///host:port`, `unix:///path` or `unix-abstract:///name`.
    ///
    /// # Errors
    ///
    /// Another scheme, or a port that is no number.
    fn parse(text: &str) -> Result<Self, field::Error> {
        let whole = if text.contains("//") { text.to_owned() } else { format!("dns://{text}") };
        let wrong = |detail: String| {
            Err(field::Error::invalid(field::Path::new("endpoint"), &whole.as_str().into(), detail))
        };
        let (scheme, rest) = whole.split_once("//").unwrap_or_default();
        let scheme = scheme.strip_suffix(':').unwrap_or_default().to_ascii_lowercase();
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        match &*scheme {
            // The authority names a resolver there; the system's is asked here.
            "dns" => {
                let target = path.strip_prefix('/').filter(|path| !path.is_empty());
                let target = target.unwrap_or(authority);
                let (host, port) = match target.rsplit_once(':') {
                    Some((host, port)) if !port.contains(']') => (host, port),
                    // As of gRPC.
                    _ => (target, "443"),
                };
                match port.parse::<u16>() {
                    Ok(_) if !host.is_empty() => Ok(Self::Tcp(format!("{host}:{port}"))),
                    Ok(_) => Ok(Self::Tcp(format!("localhost:{port}"))),
                    Err(_) => wrong(format!(
                        "parse {whole:?}: invalid port {:?} after host",
                        format!(":{port}")
                    )),
                }
            }
            "unix" => Ok(Self::Unix(format!("{authority}{path}").into())),
            "unix-abstract" => {
                let name = path.strip_prefix('/').filter(|name| !name.is_empty());
                Ok(Self::Unix(format!("\0{}", name.unwrap_or(authority)).into()))
            }
            _ => wrong(format!(
                "unsupported scheme: {scheme}.  Options are none, dns, unix, or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(members: &str) -> Result<TracingConfig, String> {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n";
        TracingConfig::parse(format!("{head}{members}").as_bytes()).map_err(|e| e.to_string())
    }

    fn endpoint(text: &str) -> Endpoint {
        parse(&format!("endpoint: {text:?}")).unwrap().endpoint
    }

    #[test]
    fn defaults_are_those_of_the_original() {
        let config = parse("").unwrap();
        assert_eq!(config.endpoint, Endpoint::Tcp("localhost:4317".to_owned()));
        assert_eq!(config.sampling, Sampling::NEVER);
    }

    #[test]
    fn all_versions_are_read() {
        for version in KIND.versions {
            let document = format!(
                r#"{{"apiVersion":"{version}","kind":"TracingConfiguration","samplingRatePerMillion":7}}"#
            );
            let config = TracingConfig::parse(document.as_bytes()).unwrap();
            assert_eq!(config.sampling, Sampling::per_million(7));
        }
    }

    #[test]
    fn endpoints_are_targets_of_grpc() {
        let tcp = |text: &str| Endpoint::Tcp(text.to_owned());
        assert_eq!(endpoint("collector:4317"), tcp("collector:4317"));
        assert_eq!(endpoint("[::1]:4317"), tcp("[::1]:4317"));
        assert_eq!(endpoint("[::1]"), tcp("[::1]:443"));
        assert_eq!(endpoint("dns:///collector:4317"), tcp("collector:4317"));
        assert_eq!(endpoint("dns://8.8.8.8/collector:4317"), tcp("collector:4317"));
        assert_eq!(endpoint("unix:///run/otlp.sock"), Endpoint::Unix("/run/otlp.sock".into()));
        assert_eq!(endpoint("unix-abstract:///otlp"), Endpoint::Unix("\0otlp".into()));
    }

    #[test]
    fn bad_documents_are_refused_in_the_originals_words() {
        let decode = "failed to read tracing config: unable to decode tracing configuration data: ";
        let validate = "failed to validate tracing configuration: ";
        for (members, start, rest) in [
            (
                "samplingRatePerMillion: -1",
                validate,
                "samplingRatePerMillion: Invalid value: -1: sampling rate must be positive",
            ),
            (
                "samplingRatePerMillion: 1000001",
                validate,
                "samplingRatePerMillion: Invalid value: 1000001: sampling rate per million must be less than or equal to one million",
            ),
            (
                "endpoint: http://localhost:4317",
                validate,
                "endpoint: Invalid value: \"http://localhost:4317\": unsupported scheme: http.  Options are none, dns, unix, or unix-abstract.  See https://github.com/grpc/grpc/blob/master/doc/naming.md",
            ),
            (
                "endpoint: localhost:http",
                validate,
                "endpoint: Invalid value: \"dns://localhost:http\": parse \"dns://localhost:http\": invalid port \":http\" after host",
            ),
            ("endpiont: x", decode, "strict decoding error: unknown field \"endpiont\""),
        ] {
            assert_eq!(parse(members).unwrap_err(), format!("{start}{rest}"));
        }
        let missing = TracingConfig::parse(b"{}").unwrap_err().to_string();
        assert_eq!(missing, format!("{decode}Object 'Kind' is missing"));
        let path = Path::new("/nowhere/tracing.yaml");
        let missing = TracingConfig::load(path).unwrap_err().to_string();
        assert_eq!(missing, "tracing-config-file /nowhere/tracing.yaml does not exist");
    }
}
