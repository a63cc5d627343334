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

mod manifests;
mod shape;

pub use manifests::{MANIFEST_BYTES_MAX, MANIFEST_FILES_MAX, ManifestFolderError, ManifestsWorker};

use crate::remote::RemoteError;
use crate::webhooks::WebhookCredentials;
use manifests::Folder;
use serde_json::Value;
use setpoint_object::field;
use setpoint_registry::{AdmissionOptions, FeatureGates};
use setpoint_remote::Users;
use setpoint_small_file::SmallFileError;
use shape::Shape;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum size of a configuration file in bytes: 1 MiB.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// A kind of document.
struct Kind {
    name: &'static str,
    /// Its API versions.
    versions: &'static [&'static str],
    /// Whether members that do not exist are refused. The reference does not check it for some.
    is_strict: bool,
    shape: Shape,
}

const TEXTS: Shape = Shape::List(&Shape::Text);
const VERSION: (&str, Shape) = ("apiVersion", Shape::Text);
const KIND: (&str, Shape) = ("kind", Shape::Text);

const DOCUMENT: Kind = Kind {
    name: "AdmissionConfiguration",
    versions: &["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"],
    is_strict: true,
    shape: Shape::Members(
        "AdmissionConfiguration",
        &[
            VERSION,
            KIND,
            (
                "plugins",
                Shape::List(&Shape::Members(
                    "v1.AdmissionPluginConfiguration",
                    &[("name", Shape::Text), ("path", Shape::Text), ("configuration", Shape::Any)],
                )),
            ),
        ],
    ),
};

const POD_SECURITY: Kind = Kind {
    name: "PodSecurityConfiguration",
    versions: &[
        "pod-security.admission.config.k8s.io/v1",
        "pod-security.admission.config.k8s.io/v1beta1",
        "pod-security.admission.config.k8s.io/v1alpha1",
    ],
    is_strict: true,
    shape: Shape::Members(
        "PodSecurityConfiguration",
        &[
            VERSION,
            KIND,
            (
                "defaults",
                Shape::Members(
                    "PodSecurityDefaults",
                    &[
                        ("enforce", Shape::Text),
                        ("enforce-version", Shape::Text),
                        ("audit", Shape::Text),
                        ("audit-version", Shape::Text),
                        ("warn", Shape::Text),
                        ("warn-version", Shape::Text),
                    ],
                ),
            ),
            (
                "exemptions",
                Shape::Members(
                    "PodSecurityExemptions",
                    &[("usernames", TEXTS), ("namespaces", TEXTS), ("runtimeClasses", TEXTS)],
                ),
            ),
        ],
    ),
};

const LIMITED_RESOURCES: Shape = Shape::Members(
    "Configuration",
    &[
        VERSION,
        KIND,
        (
            "limitedResources",
            Shape::List(&Shape::Members(
                "v1.LimitedResource",
                &[
                    ("apiGroup", Shape::Text),
                    ("resource", Shape::Text),
                    ("matchContains", TEXTS),
                    (
                        "matchScopes",
                        Shape::List(&Shape::Members(
                            "v1.ScopedResourceSelectorRequirement",
                            &[
                                ("scopeName", Shape::Text),
                                ("operator", Shape::Text),
                                ("values", TEXTS),
                            ],
                        )),
                    ),
                ],
            )),
        ),
    ],
);

/// The kinds of ResourceQuota, the current one first.
const RESOURCE_QUOTA: [Kind; 2] = [
    Kind {
        name: "ResourceQuotaConfiguration",
        versions: &["apiserver.config.k8s.io/v1"],
        is_strict: true,
        shape: LIMITED_RESOURCES,
    },
    Kind {
        name: "Configuration",
        versions: &[
            "resourcequota.admission.k8s.io/v1beta1",
            "resourcequota.admission.k8s.io/v1alpha1",
        ],
        is_strict: true,
        shape: LIMITED_RESOURCES,
    },
];

const EVENT_RATE_LIMIT: Kind = Kind {
    name: "Configuration",
    versions: &["eventratelimit.admission.k8s.io/v1alpha1"],
    is_strict: false,
    shape: Shape::Members(
        "Configuration",
        &[(
            "limits",
            Shape::List(&Shape::Members(
                "v1alpha1.Limit",
                &[
                    ("type", Shape::Text),
                    ("qps", Shape::Int32),
                    ("burst", Shape::Int32),
                    ("cacheSize", Shape::Int32),
                ],
            )),
        )],
    ),
};

const TOLERATIONS: Shape = Shape::List(&Shape::Members(
    "v1.Toleration",
    &[
        ("key", Shape::Text),
        ("operator", Shape::Text),
        ("value", Shape::Text),
        ("effect", Shape::Text),
        ("tolerationSeconds", Shape::Int64),
    ],
));

const POD_TOLERATION_RESTRICTION: Kind = Kind {
    name: "Configuration",
    versions: &["podtolerationrestriction.admission.k8s.io/v1alpha1"],
    is_strict: false,
    shape: Shape::Members("Configuration", &[("default", TOLERATIONS), ("whitelist", TOLERATIONS)]),
};

const WEBHOOK: Kind = Kind {
    name: "WebhookAdmissionConfiguration",
    versions: &["apiserver.config.k8s.io/v1"],
    is_strict: true,
    shape: Shape::Members(
        "WebhookAdmission",
        &[VERSION, KIND, ("kubeConfigFile", Shape::Text), (STATIC_MANIFESTS, Shape::Text)],
    ),
};

/// The kind of a plugin of policies.
const fn policy(name: &'static str, members: &'static [(&'static str, Shape)]) -> Kind {
    let versions = &["apiserver.config.k8s.io/v1"];
    Kind { name, versions, is_strict: true, shape: Shape::Members(name, members) }
}

const MANIFESTS: &[(&str, Shape)] = &[VERSION, KIND, (STATIC_MANIFESTS, Shape::Text)];

/// The plugins with a configuration, each with its kinds. A plugin without a kind reads any
/// document.
const KINDS: [(&str, &[Kind]); 10] = [
    ("EventRateLimit", &[EVENT_RATE_LIMIT]),
    (IMAGE_POLICY, &[]),
    (POD_NODE_SELECTOR, &[]),
    ("PodSecurity", &[POD_SECURITY]),
    ("PodTolerationRestriction", &[POD_TOLERATION_RESTRICTION]),
    ("ResourceQuota", &RESOURCE_QUOTA),
    (MUTATING, &[WEBHOOK]),
    (VALIDATING, &[WEBHOOK]),
    ("MutatingAdmissionPolicy", &[policy("MutatingAdmissionPolicyConfiguration", MANIFESTS)]),
    ("ValidatingAdmissionPolicy", &[policy("ValidatingAdmissionPolicyConfiguration", MANIFESTS)]),
];

/// A folder of policies or webhooks that are no objects. It needs the feature gate
/// `ManifestBasedAdmissionControlConfig`.
const STATIC_MANIFESTS: &str = "staticManifestsDir";

const MUTATING: &str = "MutatingAdmissionWebhook";
const VALIDATING: &str = "ValidatingAdmissionWebhook";
const IMAGE_POLICY: &str = "ImagePolicyWebhook";
const POD_NODE_SELECTOR: &str = "PodNodeSelector";

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
    /// It is not YAML or JSON, or a member has another type.
    #[error("parse {}: {why}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// It has members that do not exist.
    #[error("{}: strict decoding error: {}", path.display(), .names.iter().map(|name| format!("unknown field {name:?}")).collect::<Vec<_>>().join(", "))]
    UnknownFields {
        /// The file.
        path: PathBuf,
        /// The paths of the members.
        names: Vec<String>,
    },
    /// It is of another kind.
    #[error("{}: no kind {found_kind:?} is registered for version {found_version:?}: expected {expected}", path.display())]
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
    /// A member has an invalid value.
    #[error("{}: {error}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: field::Error,
    },
    /// The manifests of a plugin are refused.
    #[error("couldn't init admission plugin {plugin:?}: failed to load static manifests from {:?}", path.display().to_string())]
    Manifests {
        /// The plugin.
        plugin: &'static str,
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: ManifestFolderError,
    },
    /// An entry for a plugin that does not exist.
    #[error("plugins[{index}]: there is no admission plugin {name:?}")]
    NoPlugin {
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
    folders: Vec<Folder>,
}

impl AdmissionConfiguration {
    /// Reads a file and those that it refers to, and the manifests of policies and webhooks. Paths
    /// are relative to it. `features`: which the server will have. A file may also be the
    /// configuration of `ImagePolicyWebhook` and `PodNodeSelector` itself, as before there was
    /// this kind.
    ///
    /// As in the reference, the first of several entries for a plugin counts, `configuration` is
    /// preferred to `path`, and an entry with neither is that of a plugin without a configuration.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, is not YAML or JSON, or has an unknown kind or unknown members; if
    /// an entry is about a plugin that Kubernetes does not have, which the reference ignores: its
    /// name is misspelt; if manifests are refused. The plugins check their configurations in
    /// [`AdmissionOptions::build`].
    pub fn load(path: &Path, features: FeatureGates) -> Result<Self, AdmissionConfigError> {
        let document = read(path)?;
        if is_of_former_plugins(&document) {
            let plugins = [IMAGE_POLICY, POD_NODE_SELECTOR];
            let plugins = plugins.map(|name| (name.to_owned(), document.clone())).into();
            return Ok(Self { plugins, folders: Vec::new() });
        }
        check(path, &document, &[DOCUMENT])?;
        let mut plugins: Vec<(String, Value)> = Vec::new();
        let mut folders = Vec::new();
        let entries = document["plugins"].as_array().into_iter().flatten();
        for (i, entry) in entries.enumerate() {
            let text = |member: &str| entry[member].as_str().unwrap_or_default();
            let name = text("name");
            let (other, inline) = (text("path"), &entry["configuration"]);
            let is_repeated = plugins.iter().any(|(plugin, _)| plugin == name);
            if is_repeated || inline.is_null() && other.is_empty() {
                continue;
            }
            let Some((_, kinds)) = KINDS.iter().find(|(plugin, _)| *plugin == name) else {
                if AdmissionOptions::knows(name) {
                    tracing::warn!(plugin = name, "this plugin reads no configuration");
                    continue;
                }
                let name = name.to_owned();
                return Err(AdmissionConfigError::NoPlugin { index: i, name });
            };
            let (file, configuration) = match inline.is_null() {
                false => (path.to_owned(), inline.clone()),
                true => {
                    let file = path.parent().unwrap_or(Path::new("")).join(other);
                    let configuration = read(&file)?;
                    (file, configuration)
                }
            };
            check(&file, &configuration, kinds)?;
            if let Some(kubeconfig) = of_webhooks(name, &configuration, "kubeConfigFile")
                && !Path::new(kubeconfig).is_absolute()
            {
                let at = field::Path::new("kubeConfigFile");
                let detail = "must be an absolute file path";
                let error = field::Error::invalid(at, &configuration["kubeConfigFile"], detail);
                return Err(AdmissionConfigError::Invalid { path: file, error });
            }
            folders.extend(Folder::named(name, &file, &configuration, features)?);
            plugins.push((name.to_owned(), configuration));
        }
        Ok(Self { plugins, folders })
    }

    /// What reads the manifests again while the server runs, for
    /// [`manifests`](crate::ControlPlaneBuilder::manifests); `None`: there are none.
    pub fn manifests(&self) -> Option<ManifestsWorker> {
        Some(&self.folders)
            .filter(|folders| !folders.is_empty())
            .map(|folders| ManifestsWorker::new(folders.clone()))
    }

    /// Reads the kubeconfigs of the webhook plugins (`kubeConfigFile`), for
    /// [`webhook_credentials`](crate::ControlPlaneBuilder::webhook_credentials). Call it within a
    /// tokio runtime.
    ///
    /// # Errors
    ///
    /// A kubeconfig cannot be read, or a user in it cannot be used.
    pub fn webhook_credentials(&self) -> Result<WebhookCredentials, RemoteError> {
        let users = |plugin: &str| {
            let mut files = self.plugins.iter().filter(|(name, _)| name == plugin);
            let file = files.find_map(|(_, own)| of_webhooks(plugin, own, "kubeConfigFile"));
            file.map(|file| Users::open(Path::new(file)).map(Arc::new)).transpose()
        };
        Ok(WebhookCredentials { mutating: users(MUTATING)?, validating: users(VALIDATING)? })
    }

    /// Adds the configurations to options.
    #[must_use]
    pub fn apply(self, options: AdmissionOptions) -> AdmissionOptions {
        let options = self.folders.iter().fold(options, |o, f| o.manifests(&f.manifests));
        self.plugins
            .into_iter()
            .fold(options, |options, (name, configuration)| options.configure(name, configuration))
    }
}

/// A member of the configuration of a webhook plugin that is not empty.
fn of_webhooks<'a>(plugin: &str, configuration: &'a Value, member: &str) -> Option<&'a str> {
    let text = configuration[member].as_str().filter(|text| !text.is_empty());
    text.filter(|_| plugin == MUTATING || plugin == VALIDATING)
}

/// Whether a file is the configuration of the plugins that once read it themselves.
fn is_of_former_plugins(document: &Value) -> bool {
    let has = |member: &str| document.get(member).is_some();
    !has("kind") && (has("imagePolicy") || has("podNodeSelectorPluginConfig"))
}

fn read(path: &Path) -> Result<Value, AdmissionConfigError> {
    let text = setpoint_small_file::read(path, FILE_BYTES_MAX).map_err(|error| match error {
        SmallFileError::Read { path, source } => AdmissionConfigError::Read { path, source },
        SmallFileError::TooLong { path, .. } => AdmissionConfigError::TooLarge(path),
    });
    serde_saphyr::from_slice(&text?).map_err(|error| AdmissionConfigError::Syntax {
        path: path.to_owned(),
        why: error.without_snippet().to_string(),
    })
}

/// Checks the kind of a document, its members and their types.
fn check(path: &Path, document: &Value, kinds: &[Kind]) -> Result<(), AdmissionConfigError> {
    let Some(first) = kinds.first() else { return Ok(()) };
    let text = |member: &str| document[member].as_str().unwrap_or_default();
    let (version, name) = (text("apiVersion"), text("kind"));
    let is_it = |kind: &&Kind| kind.name == name && kind.versions.contains(&version);
    let path = path.to_owned();
    let Some(kind) = kinds.iter().find(is_it) else {
        return Err(AdmissionConfigError::Kind {
            path,
            expected: format!("{} in {}", first.name, first.versions.join(" or ")),
            found_version: version.to_owned(),
            found_kind: name.to_owned(),
        });
    };
    let misfits = shape::misfits(document, &kind.shape);
    if let Some(why) = misfits.other_type {
        return Err(AdmissionConfigError::Syntax { path, why });
    }
    match kind.is_strict && !misfits.unknown.is_empty() {
        true => Err(AdmissionConfigError::UnknownFields { path, names: misfits.unknown }),
        false => Ok(()),
    }
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
        AdmissionConfiguration::load(&path, FeatureGates::default()).map_err(|error| {
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
            "couldn't init admission plugin \"PodSecurity\": PodSecurity configuration error: enforce: must be one of privileged, baseline, restricted"
        );
        for (plugins, error) in [
            (
                "- name: MutatingAdmissionWebhook\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, staticManifestsDir: /a}",
                "/admission.yaml: staticManifestsDir: Forbidden: staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled",
            ),
            (
                "- name: ValidatingAdmissionPolicy\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ValidatingAdmissionPolicyConfiguration, staticManifestsDir: /a}",
                "/admission.yaml: staticManifestsDir: Forbidden: staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled",
            ),
            (
                "- name: MutatingAdmissionPolicy\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: MutatingAdmissionPolicyConfiguration, manifests: /a}",
                r#"/admission.yaml: strict decoding error: unknown field "manifests""#,
            ),
            (
                "- name: PodSecurty\n  configuration: {a: b}",
                r#"plugins[0]: there is no admission plugin "PodSecurty""#,
            ),
            (
                "- name: ResourceQuota\n  path: rates.yaml",
                r#"/rates.yaml: no kind "Configuration" is registered for version "eventratelimit.admission.k8s.io/v1alpha1": expected ResourceQuotaConfiguration in apiserver.config.k8s.io/v1"#,
            ),
            (
                "- {name: PodSecurity, config: {}}\n- {nam: a}",
                r#"/admission.yaml: strict decoding error: unknown field "plugins[0].config", unknown field "plugins[1].nam""#,
            ),
            (
                "- name: PodSecurity\n  configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, default: {enforce: baseline}, exemptions: {users: [a]}}",
                r#"/admission.yaml: strict decoding error: unknown field "default", unknown field "exemptions.users""#,
            ),
            (
                "- name: PodSecurity\n  configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: 1}}",
                "parse /admission.yaml: json: cannot unmarshal number into Go struct field PodSecurityDefaults.defaults.enforce of type string",
            ),
            (
                "- name: PodSecurity\n  configuration: {apiVersion: pod-security.admission.config.k8s.io/v2, kind: PodSecurityConfiguration}",
                r#"/admission.yaml: no kind "PodSecurityConfiguration" is registered for version "pod-security.admission.config.k8s.io/v2": expected PodSecurityConfiguration in pod-security.admission.config.k8s.io/v1 or pod-security.admission.config.k8s.io/v1beta1 or pod-security.admission.config.k8s.io/v1alpha1"#,
            ),
            (
                "- name: EventRateLimit\n  path: absent.yaml",
                "read /absent.yaml No such file or directory (os error 2)",
            ),
        ] {
            assert_eq!(load(&format!("{head}plugins:\n{plugins}\n")).unwrap_err(), error);
        }
        let without = "- name: MutatingAdmissionPolicy\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: MutatingAdmissionPolicyConfiguration}";
        load(&format!("{head}plugins:\n{without}\n")).unwrap();
        let other = load("kind: Other\n").unwrap_err();
        assert_eq!(
            other,
            r#"/admission.yaml: no kind "Other" is registered for version "": expected AdmissionConfiguration in apiserver.config.k8s.io/v1 or apiserver.k8s.io/v1alpha1"#
        );
    }

    fn names(text: &str) -> Vec<String> {
        load(text).unwrap().plugins.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn the_first_entry_of_a_plugin_counts_and_one_without_a_configuration_is_none() {
        let head =
            "apiVersion: apiserver.k8s.io/v1alpha1\nkind: AdmissionConfiguration\nplugins:\n";
        let selectors = |text: &str| {
            format!(
                "- {{name: PodNodeSelector, configuration: {{podNodeSelectorPluginConfig: {{a: {text}}}}}, path: absent.yaml}}\n"
            )
        };
        let other = "- name: PodSecurity\n- {name: Priority, configuration: {a: b}}\n";
        let text = format!("{head}{other}{}{}", selectors("b=c"), selectors("1"));
        assert_eq!(names(&text), ["PodNodeSelector"]);
        let options = load(&text).unwrap().apply(AdmissionOptions::default());
        options.enable("PodNodeSelector").build().unwrap();
    }

    /// Files from before there were AdmissionConfigurations.
    #[test]
    fn a_file_may_be_the_configuration_of_the_plugins_that_once_read_it() {
        let text = "podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: env=test}\n";
        assert_eq!(names(text), ["ImagePolicyWebhook", "PodNodeSelector"]);
        let text = "imagePolicy: {kubeConfigFile: /a}\n";
        assert_eq!(names(text), ["ImagePolicyWebhook", "PodNodeSelector"]);
        let options = load(text).unwrap().apply(AdmissionOptions::default());
        options.enable("PodNodeSelector").build().unwrap();
        load("somethingElse: 1\n").unwrap_err();
    }
}
