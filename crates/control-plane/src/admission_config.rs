//! The file of `--admission-control-config-file`: an AdmissionConfiguration.
//!
//! ```yaml
//! apiVersion: apiserver.config.k8s.io/v1
//! kind: AdmissionConfiguration
//! plugins:
//!   - name: PodSecurity
//!     configuration:
//!       apiVersion: pod-security.admission.config.k8s.io/v1
//!       kind: PodSecurityConfiguration
//!       defaults: {enforce: baseline}
//!   - name: EventRateLimit
//!     path: event-rates.yaml
//! ```

use serde_json::Value;
use setpoint_registry::AdmissionOptions;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Maximum size of a configuration file in bytes: 1 MiB.
pub const FILE_BYTES_MAX: usize = 1 << 20;

const GROUP: &str = "apiserver.config.k8s.io/";
/// The plugins with a configuration, each with its kind and the group of its API version. A plugin
/// without a kind reads any document.
const KINDS: [(&str, &str, &str); 6] = [
    ("EventRateLimit", "Configuration", "eventratelimit.admission.k8s.io/"),
    ("ImagePolicyWebhook", "", ""),
    ("PodNodeSelector", "", ""),
    ("PodSecurity", "PodSecurityConfiguration", "pod-security.admission.config.k8s.io/"),
    ("PodTolerationRestriction", "Configuration", "podtolerationrestriction.admission.k8s.io/"),
    ("ResourceQuota", "ResourceQuotaConfiguration", GROUP),
];

/// Why a file is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmissionConfigError {
    /// It cannot be read.
    #[error("read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It has more than [`FILE_BYTES_MAX`] bytes.
    #[error("{} has more than {FILE_BYTES_MAX} bytes", .0.display())]
    TooLarge(PathBuf),
    /// It is not YAML or JSON.
    #[error("parse {}: {why}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// It is of another kind.
    #[error("{}: expected {expected}, found apiVersion {found_version:?} and kind {found_kind:?}", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// The expected kind and version.
        expected: String,
        /// What it has.
        found_version: String,
        /// What it has.
        found_kind: String,
    },
    /// An entry without a name, or with neither or both of `path` and `configuration`.
    #[error("plugins[{0}]: needs a name, and a path or a configuration")]
    Entry(usize),
    /// An entry for a plugin that reads no configuration.
    #[error("plugins[{index}]: {name:?} has no configuration in this server")]
    NoConfiguration {
        /// The position.
        index: usize,
        /// The plugin.
        name: String,
    },
}

/// The configurations in a file, by plugin.
#[derive(Debug, Clone, Default)]
pub struct AdmissionConfiguration {
    plugins: Vec<(String, Value)>,
}

impl AdmissionConfiguration {
    /// Reads a file and those that it refers to. Their paths are relative to it.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, is not YAML or JSON, or has an unknown kind; if an entry is
    /// incomplete. The plugins check their configurations in
    /// [`AdmissionOptions::build`].
    pub fn load(path: &Path) -> Result<Self, AdmissionConfigError> {
        let document = read(path)?;
        check_kind(path, &document, "AdmissionConfiguration", GROUP)?;
        let mut plugins = Vec::new();
        let entries = document["plugins"].as_array().into_iter().flatten();
        for (i, entry) in entries.enumerate() {
            let text = |member: &str| entry[member].as_str().unwrap_or_default();
            let name = text("name");
            let (other, inline) = (text("path"), &entry["configuration"]);
            if name.is_empty() || inline.is_null() == other.is_empty() {
                return Err(AdmissionConfigError::Entry(i));
            }
            let Some((_, kind, group)) = KINDS.iter().find(|(plugin, _, _)| *plugin == name) else {
                let name = name.to_owned();
                return Err(AdmissionConfigError::NoConfiguration { index: i, name });
            };
            let (file, configuration) = match other.is_empty() {
                true => (path.to_owned(), inline.clone()),
                false => {
                    let file = path.parent().unwrap_or(Path::new("")).join(other);
                    let configuration = read(&file)?;
                    (file, configuration)
                }
            };
            check_kind(&file, &configuration, kind, group)?;
            plugins.push((name.to_owned(), configuration));
        }
        Ok(Self { plugins })
    }

    /// Adds the configurations to options.
    #[must_use]
    pub fn apply(self, options: AdmissionOptions) -> AdmissionOptions {
        self.plugins
            .into_iter()
            .fold(options, |options, (name, configuration)| options.configure(name, configuration))
    }
}

fn read(path: &Path) -> Result<Value, AdmissionConfigError> {
    let read = || {
        let mut text = Vec::new();
        let limit = u64::try_from(FILE_BYTES_MAX).unwrap_or(u64::MAX) + 1;
        std::fs::File::open(path)?.take(limit).read_to_end(&mut text)?;
        Ok(text)
    };
    let path = path.to_owned();
    let text = match read() {
        Ok(text) => text,
        Err(source) => return Err(AdmissionConfigError::Read { path, source }),
    };
    if text.len() > FILE_BYTES_MAX {
        return Err(AdmissionConfigError::TooLarge(path));
    }
    serde_saphyr::from_slice(&text).map_err(|error| AdmissionConfigError::Syntax {
        path,
        why: error.without_snippet().to_string(),
    })
}

fn check_kind(
    path: &Path,
    document: &Value,
    kind: &str,
    group: &str,
) -> Result<(), AdmissionConfigError> {
    let text = |member: &str| document[member].as_str().unwrap_or_default();
    if kind.is_empty() || text("kind") == kind && text("apiVersion").starts_with(group) {
        return Ok(());
    }
    Err(AdmissionConfigError::Kind {
        path: path.to_owned(),
        expected: format!("{kind} of {}", group.trim_end_matches('/')),
        found_version: text("apiVersion").to_owned(),
        found_kind: text("kind").to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    fn load(text: &str) -> Result<AdmissionConfiguration, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admission.yaml");
        std::fs::write(&path, text).unwrap();
        let rates = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\nlimits: [{type: Server, qps: 1, burst: 1}]\n";
        std::fs::write(folder.path().join("rates.yaml"), rates).unwrap();
        AdmissionConfiguration::load(&path).map_err(|error| {
            let cause = error.source().map(ToString::to_string).unwrap_or_default();
            let text = error.to_string().replace(&folder.path().display().to_string(), "");
            format!("{text} {cause}").trim().to_owned()
        })
    }

    #[test]
    fn plugins_are_configured_in_place_or_in_other_files() {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n";
        let configuration = load(&format!("{head}plugins:\n- name: EventRateLimit\n  path: rates.yaml\n- name: PodSecurity\n  configuration: {{apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {{enforce: strict}}}}\n")).unwrap();
        let error =
            configuration.apply(AdmissionOptions::default().enable("EventRateLimit")).build();
        assert_eq!(
            error.unwrap_err().to_string(),
            "the configuration of the admission plugin PodSecurity: defaults.enforce: must be one of privileged, baseline, restricted"
        );
        for (plugins, error) in [
            (
                "- name: Priority\n  configuration: {a: b}",
                r#"plugins[0]: "Priority" has no configuration in this server"#,
            ),
            ("- name: PodSecurity", "plugins[0]: needs a name, and a path or a configuration"),
            (
                "- name: ResourceQuota\n  path: rates.yaml",
                r#"/rates.yaml: expected ResourceQuotaConfiguration of apiserver.config.k8s.io, found apiVersion "eventratelimit.admission.k8s.io/v1alpha1" and kind "Configuration""#,
            ),
            (
                "- name: EventRateLimit\n  path: absent.yaml",
                "read /absent.yaml No such file or directory (os error 2)",
            ),
        ] {
            assert_eq!(load(&format!("{head}plugins:\n{plugins}\n")).unwrap_err(), error);
        }
        let other = load("kind: Other\n").unwrap_err();
        assert_eq!(
            other,
            r#"/admission.yaml: expected AdmissionConfiguration of apiserver.config.k8s.io, found apiVersion "" and kind "Other""#
        );
    }
}
