//! Limits of lists whose lengths multiply: each version is served, and listed in discovery, with
//! all names. Kubernetes has no such limits.
use serde_json::Value;
use setpoint_object::field::{Error, Errors, Path};

/// Maximum number of versions, of short names and of categories: far more than any definition has.
const ITEMS_MAX: usize = 1000;

/// The lists, as pointers and as paths.
const LISTS: [(&str, &str); 3] = [
    ("/spec/versions", "spec.versions"),
    ("/spec/names/shortNames", "spec.names.shortNames"),
    ("/spec/names/categories", "spec.names.categories"),
];

/// Reports lists that are too long, and were not before: another server may have stored longer
/// ones.
pub(super) fn check(crd: &Value, old: Option<&Value>, errors: &mut Errors) {
    for (pointer, path) in LISTS {
        let len = |crd: &Value| crd.pointer(pointer).and_then(Value::as_array).map_or(0, Vec::len);
        let n = len(crd);
        if n > ITEMS_MAX && old.is_none_or(|old| len(old) <= ITEMS_MAX) {
            errors.push(Error::too_many(Path::new(path), n, ITEMS_MAX));
        }
    }
}
