//! Levels, versions, and the policy of a namespace.
use crate::kind::list;
use serde_json::Value;
use setpoint_object::error::aggregate;
use setpoint_object::field;
use setpoint_object::name::{dns1123_label, dns1123_subdomain};
use std::collections::HashSet;
use std::fmt;

/// A level, from the most permissive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}
impl Level {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "privileged" => Some(Self::Privileged),
            "baseline" => Some(Self::Baseline),
            "restricted" => Some(Self::Restricted),
            _ => None,
        }
    }
}
impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        })
    }
}

/// What the labels of namespaces begin with.
const LABELS: &str = "pod-security.kubernetes.io/";
/// What a level must be.
const LEVELS: &str = "must be one of privileged, baseline, restricted";
/// What a version must be.
const VERSIONS: &str = r#"must be "latest" or "v1.x""#;

/// The newest minor version whose checks are known.
const MINOR: u32 = 36;
/// The minor version of a policy; `None`: the latest.
type Version = Option<u32>;

fn parse_version(text: &str) -> Option<Version> {
    if text == "latest" {
        return Some(None);
    }
    let minor = text.strip_prefix("v1.")?;
    let is_number = minor.bytes().all(|b| b.is_ascii_digit());
    let is_short = minor == "0" || !minor.starts_with('0');
    (is_number && is_short).then(|| minor.parse().ok().map(Some)).flatten()
}

/// A level in a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub(super) level: Level,
    pub(super) version: Version,
}
impl LevelVersion {
    const PRIVILEGED: Self = Self { level: Level::Privileged, version: None };
    pub(super) fn is_privileged(&self) -> bool {
        self.level == Level::Privileged
    }
    /// The level and the version as metrics name them. Any version of the most permissive level is
    /// the latest, because it has no checks.
    pub(super) fn labels(&self) -> [String; 2] {
        let version = match self.version.filter(|_| !self.is_privileged()) {
            None => "latest".to_owned(),
            Some(minor) if minor > MINOR => "future".to_owned(),
            Some(minor) => format!("v1.{minor}"),
        };
        [self.level.to_string(), version]
    }
}
impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            None => write!(f, "{}:latest", self.level),
            Some(minor) => write!(f, "{}:v1.{minor}", self.level),
        }
    }
}

/// What a namespace refuses, records in the audit log, and warns of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) enforce: LevelVersion,
    pub(super) audit: LevelVersion,
    pub(super) warn: LevelVersion,
}
impl Policy {
    /// Whether nothing is checked.
    pub(super) fn is_privileged(&self) -> bool {
        [&self.enforce, &self.audit, &self.warn].into_iter().all(LevelVersion::is_privileged)
    }
    /// What the labels of a namespace have set, of the levels that are not privileged:
    /// `enforce=baseline:latest, warn=restricted:v1.30`.
    pub(super) fn labelled(&self, namespace: &Value) -> String {
        let labels = &namespace["metadata"]["labels"];
        let is_set = |mode: &str| {
            ["", "-version"]
                .iter()
                .any(|end| labels.get(format!("pod-security.kubernetes.io/{mode}{end}")).is_some())
        };
        let modes = [("enforce", self.enforce), ("audit", self.audit), ("warn", self.warn)];
        let set = modes.into_iter().filter(|(mode, at)| !at.is_privileged() && is_set(mode));
        set.map(|(mode, at)| format!("{mode}={at}")).collect::<Vec<_>>().join(", ")
    }
    /// From `defaults` of a configuration.
    ///
    /// # Errors
    ///
    /// Everything that is wrong, in the words and the order of the reference.
    pub(super) fn of_config(defaults: &Value) -> Result<Self, String> {
        let mut errors = Vec::new();
        let mut one = |mode: &str| {
            let mut found = LevelVersion::PRIVILEGED;
            let is_set = |value: &Value| !value.is_null() && value != "";
            let level = &defaults[mode];
            match level.as_str().and_then(Level::parse) {
                Some(level) => found.level = level,
                None if is_set(level) => errors.push(format!("{mode}: {LEVELS}")),
                None => {}
            }
            let version = &defaults[format!("{mode}-version")];
            match version.as_str().and_then(parse_version) {
                Some(version) => found.version = version,
                None if is_set(version) => errors.push(format!("{mode}-version: {VERSIONS}")),
                None => {}
            }
            found
        };
        let (enforce, audit, warn) = (one("enforce"), one("audit"), one("warn"));
        match &errors[..] {
            [] => Ok(Self { enforce, audit, warn }),
            errors => Err(format!("PodSecurity configuration error: {}", aggregate(errors))),
        }
    }
    /// The policy of a namespace, with these defaults, and the errors of its labels. A wrong level
    /// to enforce is read as `restricted`, other wrong levels as `privileged`. A level that is
    /// enforced also leads to warnings, unless a label changes that.
    pub(super) fn of_namespace(&self, namespace: &Value) -> (Self, Vec<field::Error>) {
        let labels = &namespace["metadata"]["labels"];
        let (mut policy, mut errors) = (self.clone(), Vec::new());
        let mut keys = labels.as_object().into_iter().flatten().map(|(key, _)| key);
        if !keys.any(|key| key.starts_with(LABELS)) {
            return (policy, errors);
        }
        let key = |mode: &str| format!("{LABELS}{mode}");
        let label = |key: &str| labels.get(key).and_then(Value::as_str);
        let mut read = |mode: &str, into: &mut LevelVersion, fallback: Level| {
            let mut wrong = |key: &str, text: &str, detail: &str| {
                let path = field::Path::new("metadata.labels").key(key);
                errors.push(field::Error::invalid(path, &text.into(), detail));
            };
            let (level, version) = (key(mode), key(&format!("{mode}-version")));
            if let Some(text) = label(&level) {
                into.level = Level::parse(text).unwrap_or_else(|| {
                    wrong(&level, text, LEVELS);
                    fallback
                });
            }
            if let Some(text) = label(&version) {
                into.version = parse_version(text).unwrap_or_else(|| {
                    wrong(&version, text, VERSIONS);
                    None
                });
            }
        };
        read("enforce", &mut policy.enforce, Level::Restricted);
        read("audit", &mut policy.audit, Level::Privileged);
        read("warn", &mut policy.warn, Level::Privileged);
        let has = |mode: &str| label(&key(mode)).is_some();
        if has("enforce") && !has("warn") && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if !has("warn-version") {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }
}

/// What is not checked.
#[derive(Debug)]
pub(super) struct Exemptions {
    pub(super) usernames: HashSet<String>,
    pub(super) runtime_classes: HashSet<String>,
    pub(super) namespaces: HashSet<String>,
}
impl Exemptions {
    /// From `exemptions` of a configuration. Adds what is wrong to `errors`.
    pub(super) fn new(exemptions: &Value, errors: &mut Vec<field::Error>) -> Self {
        let path = field::Path::new("exemptions");
        let mut set = |member: &str, check: fn(&str) -> Vec<String>| {
            let (mut names, given) = (HashSet::new(), &exemptions[member]);
            if !given.is_null() && !given.is_array() {
                errors.push(field::Error::invalid(path.child(member), given, "must be a list"));
            }
            for (i, name) in list(exemptions, member).iter().enumerate() {
                let (name, at) = (name.as_str().unwrap_or_default(), path.child(member).index(i));
                let faults = check(name);
                if !faults.is_empty() {
                    errors.push(field::Error::invalid(at, &name.into(), faults.join(", ")));
                } else if !names.insert(name.to_owned()) {
                    errors.push(field::Error::duplicate(at, &name.into()));
                }
            }
            names
        };
        let namespaces = set("namespaces", dns1123_label);
        let runtime_classes = set("runtimeClasses", dns1123_subdomain);
        let usernames = set("usernames", |name| match name {
            "" => vec!["username must not be empty".to_owned()],
            _ => Vec::new(),
        });
        Self { usernames, runtime_classes, namespaces }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(labels: Value) -> String {
        let labels: serde_json::Map<String, Value> = labels
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (format!("pod-security.kubernetes.io/{key}"), value.clone()))
            .collect();
        let defaults = Policy::of_config(&Value::Null).unwrap();
        let (policy, errors) = defaults.of_namespace(&json!({"metadata": {"labels": labels}}));
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        format!("{} {} {} {}", policy.enforce, policy.audit, policy.warn, errors.join("; "))
    }

    #[test]
    fn labels_are_a_policy() {
        let open = "privileged:latest";
        assert_eq!(check(json!({})), format!("{open} {open} {open} "));
        assert_eq!(
            check(json!({"enforce": "baseline", "enforce-version": "v1.25"})),
            format!("baseline:v1.25 {open} baseline:v1.25 ")
        );
        assert_eq!(
            check(json!({"enforce": "restricted", "warn": "baseline", "audit": "restricted"})),
            "restricted:latest restricted:latest baseline:latest "
        );
        assert_eq!(
            check(json!({"other": "x", "enforce-version": "v1.99"})),
            format!("privileged:v1.99 {open} {open} ")
        );
        assert_eq!(
            check(json!({"enforce": "strict", "warn-version": "v1.01"})),
            format!(
                "restricted:latest {open} restricted:latest metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be one of privileged, baseline, restricted; metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"v1.01\": must be \"latest\" or \"v1.x\""
            )
        );
    }

    #[test]
    fn what_labels_have_set_is_shown() {
        let label = |mode: &str| format!("pod-security.kubernetes.io/{mode}");
        let labels = json!({
            label("enforce"): "baseline", label("audit"): "privileged",
            label("warn-version"): "v1.30",
        });
        let namespace = json!({"metadata": {"labels": labels}});
        let defaults = Policy::of_config(&json!({"warn": "restricted"})).unwrap();
        let (policy, _) = defaults.of_namespace(&namespace);
        assert_eq!(policy.labelled(&namespace), "enforce=baseline:latest, warn=restricted:v1.30");
        assert!(!policy.is_privileged());
    }

    #[test]
    fn configurations_are_checked() {
        let config = json!({"enforce": "baseline", "enforce-version": "v1.30", "warn": ""});
        let policy = Policy::of_config(&config).unwrap();
        assert_eq!(policy.enforce.to_string(), "baseline:v1.30");
        let unset = json!({"audit": "", "warn": null});
        assert_eq!(Policy::of_config(&unset), Policy::of_config(&Value::Null));
        let wrong = |defaults: Value| Policy::of_config(&defaults).unwrap_err();
        assert_eq!(
            wrong(json!({"warn": "x"})),
            "PodSecurity configuration error: warn: must be one of privileged, baseline, restricted"
        );
        assert_eq!(
            wrong(json!({"warn-version": "1.30", "audit": 1})),
            r#"PodSecurity configuration error: [audit: must be one of privileged, baseline, restricted, warn-version: must be "latest" or "v1.x"]"#
        );
        let check = |exemptions: Value| {
            let mut errors = Vec::new();
            Exemptions::new(&exemptions, &mut errors);
            if errors.is_empty() { String::new() } else { field::aggregate(&errors) }
        };
        let fits =
            json!({"usernames": ["a", "system:b"], "namespaces": [], "runtimeClasses": ["c.d"]});
        assert_eq!(check(fits), "");
        let text = check(json!({"usernames": ["", "a", "a"], "namespaces": ["a", "A_b"]}));
        assert!(text.starts_with(r#"[exemptions.namespaces[1]: Invalid value: "A_b": a lowercase RFC 1123 label must consist of"#), "{text}");
        assert!(
            text.ends_with(r#", exemptions.usernames[0]: Invalid value: "": username must not be empty, exemptions.usernames[2]: Duplicate value: "a"]"#),
            "{text}"
        );
        assert_eq!(
            check(json!({"namespaces": "a"})),
            r#"exemptions.namespaces: Invalid value: "a": must be a list"#
        );
    }
}
