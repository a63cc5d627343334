use super::*;
use crate::body::{Body, RequestBody};
use http::{Request, Response};
use setpoint_object::time::Clock;
use setpoint_registry::Registry;
use setpoint_store::MemoryStore;

fn backend(group: &str, version: &str) -> Backend {
    let handler = |_: Request<RequestBody>| async { Response::new(Body::empty()) };
    Backend::builder(group, version, Arc::new(handler)).build().unwrap()
}

fn served(backends: Vec<Backend>) -> Served {
    let (registry, _worker) =
        Registry::builder(Arc::new(MemoryStore::default()), Clock::wall()).build();
    Served::new(registry.catalog(), Backends::of(backends).table())
}

/// The order of built-in groups must not depend on which server serves their versions.
#[test]
fn built_in_groups_keep_their_order() {
    let names = |served: &Served| -> Vec<String> {
        served.groups.iter().map(|group| format!("{} {:?}", group.name, group.versions)).collect()
    };
    let local = served(Vec::new());
    let catalog = &local.catalog;
    for group in catalog.groups.iter().filter(|group| !group.name.is_empty()) {
        for version in &group.versions {
            let group_priority = super::served::group_priority(&group.name);
            let taken_over = backend(&group.name, version);
            let taken_over = Backend { group_priority, version_priority: 15, ..taken_over };
            if &*group.name == "autoscaling" {
                continue;
            }
            assert_eq!(names(&served(vec![taken_over])), names(&local), "{}", group.name);
        }
    }
}

#[test]
fn paths_below_a_group_version_go_to_its_backend() {
    let table = Backends::of(vec![backend("ex.io", "v1")]).table();
    let found = |path: &str| match table.find(path) {
        None => "-".to_owned(),
        Some(Found::Group(name)) => name.to_string(),
        Some(Found::Version(backend)) => backend.group_version().to_string(),
        Some(Found::Resource { path, verb, .. }) => {
            let sub = path.subresource.as_ref().map_or("", |sub| sub.as_str());
            let word = verb.map(|verb| format!("{verb} ")).unwrap_or_default();
            format!("{word}{}|{}|{}|{sub}", path.namespace, path.resource, path.name)
        }
    };
    for (path, expected) in [
        ("/apis", "-"),
        ("/apis/ex.io", "ex.io"),
        ("/apis/ex.io/", "ex.io"),
        ("/apis/ex.io//v1", "-"),
        ("/apis/ex.io/v2/things", "-"),
        ("/apis/ex.iox/v1", "-"),
        ("/api/ex.io/v1", "-"),
        ("/apis/ex.io/v1", "ex.io/v1"),
        ("/apis/ex.io/v1/", "ex.io/v1"),
        ("/apis/ex.io/v1/things", "|things||"),
        ("/%61pis/ex.io/v1/a%2Fb", "|a|b|"),
        ("/apis/ex.io/v1/namespaces/n/things/a/status", "n|things|a|status"),
        ("/apis/ex.io/v1/watch/things/a", "watch |things|a|"),
        ("/apis/ex.io/v1/proxy/things/a/b", "proxy |things|a|"),
        ("/apis/ex.io/v1/things/a/b/c/d", "|things|a|b"),
    ] {
        assert_eq!(found(path), expected, "{path}");
    }
}

#[test]
fn tables_are_replaced_and_not_changed() {
    let backends = Backends::default();
    backends.put(backend("ex.io", "v1")).unwrap();
    let before = backends.table();
    let ex_io = GroupVersion::new("ex.io", "v1");
    assert!(backends.set_available(&ex_io, true));
    assert_eq!(backends.table().generation, before.generation, "nothing has changed");
    assert!(backends.set_available(&ex_io, false));
    assert!(before.get("ex.io", "v1").unwrap().is_available());
    assert!(!backends.table().get("ex.io", "v1").unwrap().is_available());
    assert!(backends.remove(&ex_io));
    assert!(backends.table().is_empty() && backends.table().generation > before.generation);
}

#[test]
fn the_number_of_backends_is_limited() {
    let backends = Backends::default();
    for n in 0..BACKENDS_MAX {
        backends.put(backend(&format!("g{n}.io"), "v1")).unwrap();
    }
    assert!(matches!(backends.put(backend("one.more", "v1")), Err(BackendError::TooMany)));
    backends.put(backend("g0.io", "v1")).unwrap();
}
