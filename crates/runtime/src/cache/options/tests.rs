//! CCH-1 to 3 and 12: all combinations of options at four levels, against a reference.

use super::*;

/// A level's selector: not set, everything, something.
const SELECTORS: [Option<&str>; 3] = [None, Some(""), Some("own")];

fn options(selector: Option<&str>, level: &str) -> CacheConfig {
    let labels = selector
        .map(|selector| if selector.is_empty() { String::new() } else { format!("l={level}") });
    let fields = selector
        .map(|selector| if selector.is_empty() { String::new() } else { format!("f={level}") });
    // A value that differs per level, for the options that are not selectors.
    let resync =
        selector.map(|selector| Duration::from_secs((selector.len() + level.len()) as u64));
    CacheConfig { labels, fields, resync, ..CacheConfig::default() }
}

/// The value of the first level that sets one.
fn reference(
    levels: [Option<&CacheConfig>; 4],
    others: &[&str],
) -> (String, String, Option<Duration>) {
    let first = |of: fn(&CacheConfig) -> &Option<String>| {
        levels.iter().flatten().find_map(|level| of(level).clone()).unwrap_or_default()
    };
    let mut fields = first(|options| &options.fields);
    for other in others {
        let comma = if fields.is_empty() { "" } else { "," };
        fields = format!("{fields}{comma}metadata.namespace!={other}");
    }
    let resync = levels.iter().flatten().find_map(|level| level.resync);
    (first(|options| &options.labels), fields, resync)
}

fn pods() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "pods")
}

#[test]
fn cch_1_to_3_precedence_matches_the_reference_in_all_combinations() {
    let shapes: [Option<&[&str]>; 5] =
        [None, Some(&[]), Some(&["a"]), Some(&["a", "b"]), Some(&["", "a"])];
    let mut n_cases = 0;
    for (own_shape, default_shape) in
        shapes.iter().flat_map(|own| shapes.iter().flatten().map(move |default| (own, default)))
    {
        for selector in 0..81 {
            let selector = |level: u32| SELECTORS[selector / 3_usize.pow(level) % 3];
            let of_shape = |shape: &[&str], level: u32, name: &str| -> Namespaces {
                let at =
                    |namespace: &&str| ((*namespace).to_owned(), options(selector(level), name));
                shape.iter().map(at).collect()
            };
            let by_type = ByType {
                config: options(selector(1), "type"),
                namespaces: own_shape.map(|shape| of_shape(shape, 0, "type-namespace")),
            };
            let rules = CacheOptions {
                config: options(selector(3), "all"),
                namespaces: of_shape(default_shape, 2, "all-namespace"),
                by_type: BTreeMap::from([(pods(), by_type.clone())]),
                ..CacheOptions::default()
            };
            for is_cluster_scoped in [false, true] {
                n_cases += 1;
                let chosen: Vec<&str> = match own_shape {
                    _ if is_cluster_scoped => Vec::new(),
                    Some(shape) => shape.to_vec(),
                    None => default_shape.to_vec(),
                };
                let chosen = if chosen.is_empty() { vec![""] } else { chosen };
                let resolved = rules.resolve_of(&pods(), is_cluster_scoped);
                assert_eq!(resolved.len(), chosen.len());
                for (namespace, resolved) in chosen.iter().zip(resolved) {
                    let own = by_type.namespaces.as_ref().filter(|_| !is_cluster_scoped);
                    let levels = [
                        own.and_then(|own| own.get(*namespace)),
                        Some(&by_type.config),
                        rules.namespaces.get(*namespace).filter(|_| !is_cluster_scoped),
                        Some(&rules.config),
                    ];
                    let others: Vec<&str> = match *namespace {
                        "" => chosen.iter().copied().filter(|name| !name.is_empty()).collect(),
                        _ => Vec::new(),
                    };
                    let Resolved { selection, config, is_named } = resolved;
                    assert_eq!(is_named, !namespace.is_empty());
                    assert_eq!(selection.namespace.as_deref().unwrap_or_default(), *namespace);
                    assert_eq!(
                        (selection.labels, selection.fields, config.resync),
                        reference(levels, &others),
                        "{rules:?}"
                    );
                }
            }
        }
    }
    assert_eq!(n_cases, 5 * 4 * 81 * 2);
}

#[test]
fn cch_2_namespaces_of_a_cluster_scoped_type_are_rejected() {
    use k8s_openapi::api::core::v1::{Namespace, Pod};
    let in_a = || ByType {
        namespaces: Some(Namespaces::from([("a".to_owned(), CacheConfig::default())])),
        ..ByType::default()
    };
    let error = CacheOptions::new().of::<Namespace>(&(), in_a()).unwrap_err();
    assert_eq!(error.to_string(), "namespaces is cluster-scoped: its namespaces cannot be set");
    assert!(CacheOptions::new().of::<Pod>(&(), in_a()).is_ok());
    let all = ByType { namespaces: Some(Namespaces::new()), ..ByType::default() };
    assert!(
        CacheOptions::new().of::<Namespace>(&(), all).is_ok(),
        "an empty map means all namespaces"
    );
}

#[test]
fn cch_12_a_demanded_namespace_narrows_the_path() {
    for (fields, expected) in [
        ("metadata.namespace=a", Some("a")),
        ("status.phase=Running,metadata.namespace==a", Some("a")),
        ("metadata.namespace!=a", None),
        ("metadata.name=a", None),
        ("metadata.namespace=a/pods?x", None),
        ("", None),
    ] {
        assert_eq!(demanded_namespace(fields).as_deref(), expected, "{fields}");
    }
}

#[test]
fn options_of_all_types_have_no_order_unless_two_set_the_same() {
    let config = || CacheConfig::new().labels("a=b");
    let minute = Duration::from_secs(60);
    let orders = [
        CacheOptions::new().config(config()).resync(minute),
        CacheOptions::new().resync(minute).config(config()),
        CacheOptions::new().labels("x=y").resync(minute).config(config()),
    ];
    for options in orders {
        assert_eq!(options.config.labels.as_deref(), Some("a=b"));
        assert_eq!(options.config.resync, Some(minute));
    }
    let last = CacheOptions::new().config(config()).labels("x=y");
    assert_eq!(last.config.labels.as_deref(), Some("x=y"));
}

/// `WATCH_NAMESPACE=a, b` without a trim: its caches sent requests to no path, for ever.
#[test]
fn text_that_is_no_name_of_a_namespace_is_refused() {
    use k8s_openapi::api::core::v1::Pod;

    for name in [" b", "b ", "a/pods", "..", "A", "a?b", "a.b"] {
        let error = CacheOptions::new().namespaces(["a", name]).unwrap_err();
        assert_eq!(error, CacheOptionsError::Namespace { name: name.to_owned() });
        let by_type = ByType::new().namespaces([name]);
        assert!(CacheOptions::new().of::<Pod>(&(), by_type).is_err(), "{name}");
    }
    assert!(CacheOptions::new().namespaces([ALL_NAMESPACES, "a", "a-1"]).is_ok());
}
