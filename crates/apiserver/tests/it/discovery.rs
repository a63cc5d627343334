//! Discovery, version, health and paths that are not served.

use crate::harness::{Server, request};

crate::cases! {
    roots_are_listed
    version_parses_as_a_semantic_version
    health_endpoints_pass
    legacy_discovery_has_entries_of_subresources
    aggregated_discovery_is_cached_by_etag
    everything_in_discovery_is_served
    group_order_is_the_reference_servers
    unknown_paths_are_answered_as_clients_expect
    methods_that_are_not_served_are_405
    documents_without_routes_have_every_method
    discovery_is_refused_in_unknown_forms
}

async fn roots_are_listed(server: Server) {
    let paths = server.get("/").await.json();
    let paths: Vec<&str> =
        paths["paths"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
    assert!(paths.is_sorted());
    for path in ["/api/v1", "/apis", "/apis/", "/apis/apps/v1", "/healthz", "/version"] {
        assert!(paths.contains(&path), "{path}");
    }
    let checks = ["/healthz/etcd", "/livez/poststarthook/rbac/bootstrap-roles", "/readyz/shutdown"];
    for path in checks {
        assert!(paths.contains(&path), "{path}");
        assert_eq!(server.get(path).await.text(), "ok", "{path}");
    }
    assert_eq!(server.get("/index.html").await.body, server.get("/").await.body);
}

async fn version_parses_as_a_semantic_version(server: Server) {
    let answer = server.get("/version").await;
    assert!(answer.text().starts_with("{\n  \""), "always indented");
    let version = answer.json();
    assert_eq!((&version["major"], &version["minor"]), (&"1".into(), &"36".into()));
    assert_eq!(version["gitVersion"], "v1.36.2+setpoint");
    let below = server.get("/version/x").await;
    below.check_status(404, "NotFound", "the server could not find the requested resource");
}

async fn health_endpoints_pass(server: Server) {
    // Requests wait for readiness; health endpoints do not wait.
    server.get("/api").await;
    for path in ["/healthz", "/livez", "/readyz", "/livez/ping", "/readyz/informer-sync"] {
        let answer = server.get(path).await;
        assert_eq!((answer.code, answer.text().as_str()), (200, "ok"), "{path}");
        assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
    }
    assert!(
        server
            .get("/readyz?verbose")
            .await
            .text()
            .ends_with("[+]shutdown ok\nreadyz check passed\n")
    );
    assert_eq!(server.get("/livez/shutdown").await.code, 404);
}

async fn legacy_discovery_has_entries_of_subresources(server: Server) {
    let core = server.get("/api/v1/").await.json();
    assert_eq!(core["kind"], "APIResourceList");
    assert!(core.get("apiVersion").is_none(), "the core list has none");
    let entry = |list: &serde_json::Value, name: &str| {
        list["resources"].as_array().unwrap().iter().find(|r| r["name"] == name).cloned().unwrap()
    };
    let pods = entry(&core, "pods");
    assert_eq!(pods["storageVersionHash"], "xPOwRZ+Yhw8=");
    assert_eq!(pods["shortNames"], serde_json::json!(["po"]));
    assert_eq!(pods["singularName"], "pod");
    assert_eq!(entry(&core, "pods/status")["singularName"], "");
    assert_eq!(entry(&core, "pods/eviction")["group"], "policy");
    let namespaces = entry(&core, "namespaces");
    assert!(!namespaces["verbs"].as_array().unwrap().contains(&"deletecollection".into()));
    let apps = server.get("/apis/apps/v1").await.json();
    assert_eq!(apps["apiVersion"], "v1");
    assert_eq!(entry(&apps, "deployments")["storageVersionHash"], "8aSe+NMegvE=");
    assert_eq!(entry(&apps, "deployments/scale")["group"], "autoscaling");
    let versions = server.get("/api").await.json();
    assert_eq!(versions["versions"], serde_json::json!(["v1"]));
    if server.is_remote() {
        assert_eq!(versions["serverAddressByClientCIDRs"][0]["serverAddress"], "localhost");
    }
}

const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";

async fn everything_in_discovery_is_served(server: Server) {
    let groups = server.get("/apis").await.json();
    let versions = groups["groups"].as_array().unwrap().iter().flat_map(|group| {
        let versions = group["versions"].as_array().unwrap().iter();
        versions.map(|version| format!("/apis/{}", version["groupVersion"].as_str().unwrap()))
    });
    for root in std::iter::once("/api/v1".to_owned()).chain(versions) {
        let list = server.get(&root).await.json();
        for resource in list["resources"].as_array().unwrap() {
            let name = resource["name"].as_str().unwrap();
            let (plural, subresource) = name.split_once('/').unwrap_or((name, ""));
            let namespaced = resource["namespaced"] == true;
            let namespace = if namespaced { "/namespaces/default" } else { "" };
            let collection = format!("{root}{namespace}/{plural}");
            for verb in resource["verbs"].as_array().unwrap() {
                let object = format!("{collection}/x/{subresource}");
                let object = object.trim_end_matches('/');
                let (method, path) = match (verb.as_str().unwrap(), subresource) {
                    ("create", "") => ("POST", &*collection),
                    ("create", _) => ("POST", object),
                    ("get", _) => ("GET", object),
                    ("update", _) => ("PUT", object),
                    ("patch", _) => ("PATCH", object),
                    ("delete", _) => ("DELETE", object),
                    ("list", _) => ("GET", &*collection),
                    // They would remove the resources of later cases, and a watch does not end.
                    ("deletecollection" | "watch", _) => continue,
                    (verb, _) => panic!("{name}: {verb}"),
                };
                let answer = server.send(request(method, path, "{}")).await;
                let missing = answer.code == 404
                    && answer.text().contains("the server could not find the requested resource");
                assert!(
                    !missing && !matches!(answer.code, 405 | 501),
                    "{method} {path}: {} {}",
                    answer.code,
                    answer.text()
                );
            }
        }
    }
    let index = server.get("/openapi/v3").await.json();
    for path in index["paths"].as_object().unwrap().keys() {
        let answer = server.get(&format!("/{path}")).await;
        assert_ne!(answer.code, 404, "/{path}");
    }
}

async fn aggregated_discovery_is_cached_by_etag(server: Server) {
    for path in ["/api", "/apis"] {
        let answer = server.accept(path, AGGREGATED).await;
        assert_eq!(
            answer.header("content-type"),
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        );
        assert_eq!(answer.header("cache-control"), "public");
        assert_eq!(answer.json()["kind"], "APIGroupDiscoveryList");
        let mut again = request("GET", path, "");
        again.headers_mut().insert("accept", AGGREGATED.parse().unwrap());
        again.headers_mut().insert("if-none-match", answer.header("etag").parse().unwrap());
        let again = server.send(again).await;
        assert_eq!((again.code, again.body.len()), (304, 0));
        assert_eq!(again.header("etag"), answer.header("etag"));
    }
    let core = server.accept("/api", AGGREGATED).await.json();
    assert_eq!(core["items"].as_array().unwrap().len(), 1);
    assert_eq!(core["items"][0]["metadata"], serde_json::json!({}));
}

async fn group_order_is_the_reference_servers(server: Server) {
    let groups = server.get("/apis").await.json();
    let names: Vec<&str> =
        groups["groups"].as_array().unwrap().iter().map(|g| g["name"].as_str().unwrap()).collect();
    let at = |name: &str| {
        names.iter().position(|n| *n == name).unwrap_or_else(|| panic!("{name}: {names:?}"))
    };
    assert!(at("apps") < at("batch"));
    assert!(at("batch") < at("rbac.authorization.k8s.io"));
    let autoscaling = &groups["groups"][at("autoscaling")];
    assert_eq!(autoscaling["preferredVersion"]["version"], "v2");
}

async fn unknown_paths_are_answered_as_clients_expect(server: Server) {
    for path in ["/nope", "/apis/nope", "/apis/nope/v1", "/apis/nope/v1/foos"] {
        let answer = server.get(path).await;
        assert_eq!((answer.code, answer.text().as_str()), (404, "404 page not found\n"), "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
    }
    for path in [
        "/api/v2",
        "/apis/apps/v7",
        "/api/v1/foos",
        "/api/v1/pods/x",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/namespaces/default/configmaps/x/status",
        "/api/v1//configmaps",
    ] {
        let answer = server.get(path).await;
        let status = answer.check_status(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
        assert_eq!(status["details"], serde_json::json!({}), "{path}");
    }
    server.get("/api/v1/namespaces/default/configmaps/a%25b").await.check_status(
        400,
        "BadRequest",
        r#"Name parameter invalid: "a%b": may not contain '%'"#,
    );
}

async fn methods_that_are_not_served_are_405(server: Server) {
    for (method, path) in [
        ("DELETE", "/api/v1/namespaces"),
        ("POST", "/api/v1/configmaps"),
        ("DELETE", "/api/v1/configmaps"),
        ("POST", "/api/v1/namespaces/default/configmaps/x"),
        ("PUT", "/api/v1/namespaces/default/configmaps"),
        ("POST", "/api"),
        ("POST", "/apis/apps/v1"),
        ("HEAD", "/version"),
        ("OPTIONS", "/api/v1/namespaces"),
        ("POST", "/api/v1/watch/namespaces/default/configmaps"),
    ] {
        let answer = server.send(request(method, path, "")).await;
        if method == "HEAD" {
            assert_eq!((answer.code, answer.body.len()), (405, 0), "{path}");
            continue;
        }
        let status = answer.check_status(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        );
        assert_eq!(status["details"], serde_json::json!({}), "{method} {path}");
    }
    assert_eq!(server.send(request("HEAD", "/api/v1/namespaces", "")).await.code, 405);
}

async fn documents_without_routes_have_every_method(server: Server) {
    for path in ["/", "/apis", "/apis/apps", "/openapi/v2", "/openapi/v3", "/healthz"] {
        let expected = server.get(path).await;
        assert_eq!(expected.code, 200, "{path}");
        for method in ["POST", "DELETE", "OPTIONS"] {
            let answer = server.send(request(method, path, "")).await;
            assert_eq!((answer.code, answer.body), (200, expected.body.clone()), "{method} {path}");
        }
        assert_eq!(server.send(request("HEAD", path, "")).await.code, 200, "HEAD {path}");
    }
    for path in ["/healthz/", "/livez/", "/readyz/"] {
        let answer = server.get(path).await;
        assert_eq!((answer.code, answer.text().as_str()), (404, "404 page not found\n"), "{path}");
    }
}

async fn discovery_is_refused_in_unknown_forms(server: Server) {
    let answer = server.accept("/apis", "text/html").await;
    answer.check_status(
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
    );
    assert!(answer.text().starts_with("{\n  "), "nothing acceptable: indented JSON");
    let yaml = server.accept("/apis/apps", "application/yaml").await;
    assert_eq!(yaml.header("content-type"), "application/yaml");
    assert!(yaml.text().contains("kind: APIGroup\n"), "{}", yaml.text());
}
