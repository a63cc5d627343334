use super::*;
use proptest::prelude::*;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODw==";

fn config(resources: &str) -> Result<EncryptionConfig, ConfigError> {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n{resources}"
    );
    EncryptionConfig::parse(text.as_bytes())
}
/// An entry for these resources, with a key of this name.
fn entry(resources: &str, key: &str) -> String {
    format!(
        "- resources: [{resources}]\n  providers:\n  - aesgcm: {{keys: [{{name: {key}, secret: {KEY}}}]}}\n  - identity: {{}}\n"
    )
}
fn faults(result: Result<EncryptionConfig, ConfigError>) -> Vec<String> {
    match result.unwrap_err() {
        ConfigError::Faults(faults) => faults.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}
/// The key that writes a resource.
fn writer(config: &EncryptionConfig, resource: &str) -> Option<String> {
    let name = GroupResource::parse(resource);
    let chain = config.chain((&name.group, &name.resource))?;
    chain.writer().map(|key| key.name.clone())
}

#[test]
fn the_documented_example_is_parsed() {
    let text = format!(
        r#"
---
# This is what Kubernetes' documentation shows.
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources:
      - secrets
      - configmaps
      - pandas.awesome.bears.example
    providers:
      - identity: {{}}
      - aesgcm:
          keys:
            - name: key1
              secret: {KEY}
            - name: key2
              secret: dGhpcyBpcyBwYXNzd29yZA==
      - aescbc:
          keys:
            - name: key1
              secret: {KEY}
      - secretbox:
          keys:
            - name: key1
              secret: YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXoxMjM0NTY=
  - resources:
      - events
    providers:
      - identity: {{}}
  - resources:
      - '*.apps'
    providers:
      - aescbc:
          keys:
            - name: key2
              secret: {KEY}
  - resources:
      - '*.*'
    providers:
      - aescbc:
          keys:
            - name: key3
              secret: {KEY}
"#
    );
    let config = EncryptionConfig::parse(text.as_bytes()).unwrap();
    for (resource, key) in [
        ("secrets", None),
        ("events", None),
        ("deployments.apps", Some("key2")),
        ("pods", Some("key3")),
        ("foos.example.com", Some("key3")),
    ] {
        assert_eq!(writer(&config, resource).as_deref(), key, "{resource}");
    }
    assert_eq!(config.summary().len(), 6);
    assert!(!config.summary().join(" ").contains("password"));
    // The same as JSON.
    let tree: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    let json = EncryptionConfig::parse(tree.to_string().as_bytes()).unwrap();
    assert_eq!(json.summary(), config.summary());
    assert_ne!(json.hash(), config.hash());
}

#[test]
fn the_most_specific_name_wins() {
    let entries = [
        entry("secrets", "one"),
        entry("'*.'", "core"),
        entry("'*.apps'", "apps"),
        entry("'*.*'", "all"),
    ];
    let config = config(&entries.concat()).unwrap();
    for (resource, key) in [
        ("secrets", "one"),
        ("configmaps", "core"),
        ("deployments.apps", "apps"),
        ("foos.example.com", "all"),
        ("secrets.apps", "apps"),
    ] {
        assert_eq!(writer(&config, resource).as_deref(), Some(key), "{resource}");
    }
}

/// As in Kubernetes: a resource in two entries has the providers of both, in order.
#[test]
fn entries_for_one_resource_add_up() {
    let config = config(&(entry("secrets", "one") + &entry("secrets", "two"))).unwrap();
    assert_eq!(config.chain(("", "secrets")).unwrap().providers.len(), 4);
    assert_eq!(writer(&config, "secrets").as_deref(), Some("one"));
    assert_eq!(config.chain(("", "configmaps")).map(|_| ()), None);
}

#[test]
fn faults_have_their_place_and_kubernetes_texts() {
    let provider = |text: &str| format!("- resources: [secrets]\n  providers:\n  - {text}\n");
    let resources = |text: &str| entry(text, "k");
    for (text, expected) in [
        ("  []".to_owned(), "resources: Required value: at least one resources is required"),
        ("  {}".to_owned(), "resources: expected a list"),
        (
            "- providers: [{identity: {}}]".to_owned(),
            "resources[0].resources: Required value: at least one resources[0].resources is required",
        ),
        (
            "- resources: [secrets]".to_owned(),
            "resources[0].providers: Required value: at least one resources[0].providers is required",
        ),
        (
            provider("{}"),
            "resources[0].providers[0]: provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
        ),
        (
            provider("identity:"),
            "resources[0].providers[0]: provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
        ),
        (
            provider("{identity: {}, aesgcm: {}}"),
            "resources[0].providers[0]: more than one provider specified in a single element, should split into different list elements",
        ),
        (provider("rot13: {}"), "resources[0].providers[0].rot13: unknown field"),
        (provider("identity: {a: 1}"), "resources[0].providers[0].identity.a: unknown field"),
        (
            provider("secretbox: {}"),
            "resources[0].providers[0].secretbox.keys: Required value: at least one keys is required",
        ),
        (
            provider("aesgcm: {keys: [{secret: AAECAwQFBgcICQoLDA0ODw==}]}"),
            "resources[0].providers[0].aesgcm.keys[0].name: Required value: name is a mandatory field for a key",
        ),
        (
            provider("aesgcm: {keys: [{name: a}]}"),
            "resources[0].providers[0].aesgcm.keys[0].secret: Required value: secret is a mandatory field for a key",
        ),
        (
            provider("aesgcm: {keys: [{name: a, secret: '%%'}]}"),
            "resources[0].providers[0].aesgcm.keys[0].secret: Invalid value: \"REDACTED\": secrets must be base64 encoded",
        ),
        (
            provider("aescbc: {keys: [{name: a, secret: YWJj}]}"),
            "resources[0].providers[0].aescbc.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 3, expected one of [16 24 32]",
        ),
        (
            provider("secretbox: {keys: [{name: a, secret: AAECAwQFBgcICQoLDA0ODw==}]}"),
            "resources[0].providers[0].secretbox.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 16, expected one of [32]",
        ),
        (
            provider("aesgcm: {keys: [{name: 7, secret: AAECAwQFBgcICQoLDA0ODw==}]}"),
            "resources[0].providers[0].aesgcm.keys[0].name: expected a string",
        ),
        (
            resources("Secrets"),
            "resources[0].resources[0]: Invalid value: \"Secrets\": resource name should not contain capital letters",
        ),
        (
            resources("'*'"),
            "resources[0].resources[0]: Invalid value: \"*\": use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources",
        ),
        (
            resources("serviceipallocations"),
            "resources[0].resources[0]: Invalid value: \"serviceipallocations\": resources which do not have REST API/s cannot be encrypted",
        ),
        (
            resources("'*.events.k8s.io'"),
            "resources[0].resources[0]: Invalid value: \"*.events.k8s.io\": '*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file",
        ),
        (
            resources("foo.extensions"),
            "resources[0].resources[0]: Invalid value: \"foo.extensions\": 'extensions' group has been removed and cannot be used for encryption",
        ),
        (
            resources("'secrets.*'"),
            "resources[0].resources[0]: Invalid value: \"secrets.*\": encrypting the same resource across groups is not supported",
        ),
        (
            resources("secrets, secrets"),
            "resources[0].resources: Invalid value: [\"secrets\",\"secrets\"]: the same resource cannot be specified multiple times",
        ),
        (
            resources("secrets, '*.'"),
            "resources[0].resources: Invalid value: [\"secrets\",\"*.\"]: using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked",
        ),
        (
            resources("'*.apps', '*.*'"),
            "resources[0].resources: Invalid value: [\"*.apps\",\"*.*\"]: using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked",
        ),
        (
            entry("'*.'", "a") + &entry("events, secrets", "b"),
            "resources[1].resources[0]: resource \"events\" is masked by earlier rule \"*.\"; resources[1].resources[1]: resource \"secrets\" is masked by earlier rule \"*.\"",
        ),
        (
            entry("'*.*'", "a") + &entry("'*.apps'", "b"),
            "resources[1].resources[0]: resource \"*.apps\" is masked by earlier rule \"*.*\"",
        ),
        (
            entry("'*.apps'", "a") + &entry("'*.apps'", "b"),
            "resources[1].resources[0]: resource \"*.apps\" is masked by earlier rule \"*.apps\"",
        ),
        (
            format!("{}- resources: [pods]\n  providers: []\n  more: 1\n", entry("secrets", "a")),
            "resources[1].more: unknown field; resources[1].providers: Required value: at least one resources[1].providers is required",
        ),
    ] {
        assert_eq!(faults(config(&text)).join("; "), expected, "{text}");
    }
}

#[test]
fn plugins_are_parsed_and_refused_as_in_kubernetes() {
    let v1 = "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.  Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature.";
    let kms =
        |members: &str| format!("- resources: [secrets]\n  providers:\n  - kms: {{{members}}}\n");
    let right = "apiVersion: v2, name: a, endpoint: 'unix:///tmp/s.sock'";
    for (members, expected) in [
        (right.to_owned(), None),
        (format!("{right}, timeout: 10s"), None),
        ("apiVersion: v2, name: a, endpoint: 'unix:///@abstract'".to_owned(), None),
        ("name: a, endpoint: 'unix:///tmp/s'".to_owned(), Some(v1.to_owned())),
        ("apiVersion: v1, name: a, endpoint: 'unix:///tmp/s', cachesize: 7".to_owned(), Some(v1.to_owned())),
        (
            "{}".to_owned().replace("{}", "apiVersion: v2"),
            Some(".name: Required value: name is a mandatory field for a provider; .endpoint: Invalid value: \"\": endpoint is a mandatory field for a kms".to_owned()),
        ),
        (
            right.replace("name: a", "name: 'a:b'"),
            Some(".name: Invalid value: \"a:b\": invalid KMS provider name a:b, must not contain ':'".to_owned()),
        ),
        (
            format!("{right}, timeout: 0s"),
            Some(".timeout: Invalid value: \"0s\": timeout should be a positive value".to_owned()),
        ),
        (
            format!("{right}, timeout: soon"),
            Some(".timeout: time: invalid duration \"soon\"".to_owned()),
        ),
        (
            format!("{right}, cachesize: 5"),
            Some(".cachesize: Invalid value: 5: cachesize is not supported in v2".to_owned()),
        ),
        (
            "apiVersion: v3, name: a, endpoint: 'tcp://x:1'".to_owned(),
            Some(".endpoint: Invalid value: \"tcp://x:1\": unsupported scheme \"tcp\" for KMS provider, only unix is supported; .apiVersion: Invalid value: \"v3\": unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported".to_owned()),
        ),
        (
            "apiVersion: v2, name: a, endpoint: ':x'".to_owned(),
            Some(".endpoint: Invalid value: \":x\": invalid endpoint for kms provider, error: parse \":x\": missing protocol scheme".to_owned()),
        ),
        (
            "apiVersion: v2, name: a, endpoint: /tmp/s".to_owned(),
            Some(".endpoint: Invalid value: \"/tmp/s\": unsupported scheme \"\" for KMS provider, only unix is supported".to_owned()),
        ),
        (format!("{right}, more: 1"), Some(".more: unknown field".to_owned())),
    ] {
        let result = config(&kms(&members));
        match expected {
            None => assert_eq!(result.unwrap().summary(), ["secrets: written with kms:a, 1 providers"]),
            Some(expected) => {
                let found = faults(result).join("; ");
                let found = found.replace("resources[0].providers[0].kms", "");
                assert_eq!(found.trim_start_matches(": "), expected, "{members}");
            }
        }
    }
    let twice =
        format!("{0}- resources: [configmaps]\n  providers:\n  - kms: {{{right}}}\n", kms(right));
    assert_eq!(
        faults(config(&twice)),
        [
            "resources[1].providers[0].kms.name: Invalid value: \"a\": duplicate KMS provider name a, names must be unique"
        ]
    );
}

#[test]
fn several_faults_are_a_list() {
    let error = config("- {}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the encryption configuration is invalid: [resources[0].resources: Required value: at least one resources[0].resources is required, resources[0].providers: Required value: at least one resources[0].providers is required]"
    );
    let error = config("  []").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the encryption configuration is invalid: resources: Required value: at least one resources is required"
    );
}

#[test]
fn other_documents_are_refused() {
    let kind = faults(EncryptionConfig::parse(b"apiVersion: v1\nkind: Pod\n"));
    assert_eq!(
        kind,
        [
            "kind: got unexpected config type: v1 Pod, expected apiserver.config.k8s.io/v1 EncryptionConfiguration"
        ]
    );
    EncryptionConfig::parse(
        format!("apiVersion: v1\nkind: EncryptionConfig\nresources:\n{}", entry("secrets", "a"))
            .as_bytes(),
    )
    .unwrap();
    assert!(matches!(EncryptionConfig::parse(b" \n"), Err(ConfigError::Empty)));
    let large = vec![b'#'; FILE_BYTES_MAX + 1];
    assert!(matches!(EncryptionConfig::parse(&large), Err(ConfigError::TooLarge { .. })));
    let twice = "kind: EncryptionConfiguration\nkind: EncryptionConfiguration\n";
    let twice = EncryptionConfig::parse(twice.as_bytes()).unwrap_err();
    assert!(matches!(twice, ConfigError::Syntax { line: 2, .. }), "{twice:?}");
}

/// A parser's message may quote an invalid file; this one does not.
#[test]
fn no_error_contains_a_secret() {
    let secret = "c2VjcmV0LXNlY3JldC1zZWNyZXQ=";
    for text in [
        format!("secret: {secret}\n  bad: [indent\n"),
        format!("\"{secret}"),
        format!("? {secret}"),
        format!("apiVersion: {{{secret}"),
        format!("apiVersion: {secret}\nkind: {secret}{secret}"),
    ] {
        let error = EncryptionConfig::parse(text.as_bytes()).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("c2Vjcm"), "{error:?}");
    }
    let error = config(&format!(
        "- resources: [secrets]\n  providers:\n  - aesgcm: {{keys: [{{name: a, secret: {secret}}}]}}\n"
    ))
    .unwrap_err();
    assert!(!format!("{error} {error:?}").contains("c2Vjcm"), "{error:?}");
}

#[test]
fn the_number_of_reported_faults_is_bounded() {
    let names: Vec<_> = (0..100).map(|n| format!("A{n}")).collect();
    assert_eq!(faults(config(&entry(&names.join(", "), "a"))).len(), ConfigError::FAULTS_MAX);
}

#[test]
fn a_missing_file_is_named_in_the_error() {
    let error = EncryptionConfig::load(Path::new("/nowhere/at/all.yaml")).unwrap_err();
    assert!(error.to_string().contains("/nowhere/at/all.yaml"));
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused(text in ".{0,200}") {
        let _ = EncryptionConfig::parse(text.as_bytes());
    }
}
