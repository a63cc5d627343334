//! Descriptions of operations, in the words of the reference.

use super::path::Action;

/// The list of a group version's resources.
pub(super) const RESOURCES: &str = "get available resources";
/// A group.
pub(super) const GROUP: &str = "get information of a group";

/// The description of an operation on an object of a kind, or on its subresource. `watches`: a list
/// is said to be a watch, too.
pub(super) fn of(
    action: Action,
    method: &str,
    kind: &str,
    sub: Option<&str>,
    watches: bool,
) -> String {
    let article = article(kind);
    match (action, sub) {
        (Action::List, _) if watches => format!("list or watch objects of kind {kind}"),
        (Action::List, _) => format!("list objects of kind {kind}"),
        (Action::WatchList, _) => format!(
            "watch individual changes to a list of {kind}. deprecated: use the 'watch' parameter \
             with a list operation instead."
        ),
        (Action::Watch, _) => format!(
            "watch changes to an object of kind {kind}. deprecated: use the 'watch' parameter \
             with a list operation instead, filtered to a single item with the 'fieldSelector' \
             parameter."
        ),
        (Action::DeleteCollection, _) => format!("delete collection of {kind}"),
        (Action::Connect, sub) => {
            let (method, sub) = (method.to_ascii_uppercase(), sub.unwrap_or_default());
            format!("connect {method} requests to {sub} of {kind}")
        }
        (Action::Get, None) => format!("read the specified {kind}"),
        (Action::Get, Some(sub)) => format!("read {sub} of the specified {kind}"),
        (Action::Put, None) => format!("replace the specified {kind}"),
        (Action::Put, Some(sub)) => format!("replace {sub} of the specified {kind}"),
        (Action::Patch, None) => format!("partially update the specified {kind}"),
        (Action::Patch, Some(sub)) => format!("partially update {sub} of the specified {kind}"),
        (Action::Post, None) => format!("create {article}{kind}"),
        (Action::Post, Some(sub)) => format!("create {sub} of {article}{kind}"),
        (Action::Delete, None) => format!("delete {article}{kind}"),
        (Action::Delete, Some(sub)) => format!("delete {sub} of {article}{kind}"),
    }
}

/// The article of a kind with a space; none for a plural.
pub(super) fn article(kind: &str) -> &'static str {
    if kind.ends_with('s') && !kind.ends_with("ss") {
        return "";
    }
    match kind.bytes().next().map(|first| first.to_ascii_lowercase()) {
        Some(b'a' | b'e' | b'i' | b'o' | b'u') => "an ",
        _ => "a ",
    }
}

/// The description of the parameter `name`.
pub(super) fn name_of(kind: &str) -> String {
    format!("name of the {kind}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn articles_are_those_of_the_reference() {
        let create = |kind| of(Action::Post, "post", kind, None, true);
        assert_eq!(create("Pod"), "create a Pod");
        assert_eq!(create("Ingress"), "create an Ingress");
        assert_eq!(create("Endpoints"), "create Endpoints");
        let evict = of(Action::Post, "post", "Pod", Some("eviction"), true);
        assert_eq!(evict, "create eviction of a Pod");
    }
}
