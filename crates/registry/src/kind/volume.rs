//! What volumes, claims and their classes have in common.
use crate::kind::at::At;
use crate::table::cell;
use serde_json::Value;

/// The annotation with a volume's or claim's class from before there was a field.
pub(super) const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// The annotation that a member has replaced, with the API's words.
pub(super) const OLD_CLASS: (&str, &str) =
    (CLASS_ANNOTATION, r#"deprecated since v1.8; use "storageClassName" attribute instead"#);

/// Warnings of those annotations that an object has.
pub(super) fn annotation_warnings<'a>(
    object: &'a Value,
    deprecated: &'a [(&str, &str)],
) -> impl Iterator<Item = String> + 'a {
    let annotations = &object["metadata"]["annotations"];
    let given = deprecated.iter().filter(|(key, _)| annotations.get(key).is_some());
    given.map(|(key, message)| format!("metadata.annotations[{key}]: {message}"))
}

fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    cell::at(object, "metadata.annotations").get(key).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn class_name(object: &Value) -> Value {
    let class = match annotation(object, CLASS_ANNOTATION) {
        "" => cell::text(object, "spec.storageClassName"),
        class => class,
    };
    class.into()
}

/// `RWO,ROX,RWX,RWOP`: those that are set, in this order.
pub(super) fn access_modes(modes: &[Value]) -> String {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let given = short.iter().filter(|(long, _)| modes.iter().any(|mode| mode == long));
    given.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

pub(super) fn phase(object: &Value) -> &str {
    if cell::deleting(object) { "Terminating" } else { cell::text(object, "status.phase") }
}

/// The name, marked if an annotation makes the class the default.
pub(super) fn class_title(object: &Value, annotations: &[&str]) -> Value {
    let default = annotations.iter().any(|key| annotation(object, key) == "true");
    let name = cell::text(object, "metadata.name");
    if default { format!("{name} (default)").into() } else { name.into() }
}

/// Maximum number of parameters of a class, and of their bytes.
const PARAMETERS_MAX: usize = 512;
const PARAMETER_BYTES_MAX: usize = 256 * 1024;

/// The parameters of a class.
pub(super) fn parameters(at: &At<'_, '_>) {
    if at.len() > PARAMETERS_MAX {
        return at.too_long(PARAMETERS_MAX);
    }
    let mut n_bytes = 0;
    for (key, value) in at.all() {
        if key.is_empty() {
            at.invalid_as(&"".into(), "field can not be empty.");
        }
        n_bytes += key.len() + value.text().len();
    }
    if n_bytes > PARAMETER_BYTES_MAX {
        at.too_long(PARAMETER_BYTES_MAX);
    }
}
