//! Reads, drawn from a seed.

use crate::validation::objects::Served;
use crate::validation::random::Random;
use serde_json::json;

/// Stands for the server's own token of a page, and for its own resourceVersion.
pub(super) const TOKEN: &str = "$TOKEN";
pub(super) const REVISION: &str = "$REVISION";

/// A request that changes nothing.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: &'static str,
    /// Without options.
    pub(super) path: String,
    /// In order, not yet encoded.
    pub(super) options: Vec<(&'static str, String)>,
    pub(super) accept: &'static str,
    pub(super) body: String,
    /// What it does, for the page.
    pub(super) what: &'static str,
}

const LABELS: &[&str] = &[
    "app=a",
    "app!=a",
    "app in (a,b)",
    "app notin (a)",
    "!app",
    "app",
    "app==a,tier=x",
    "app=a,app=b",
    "a b",
    "app=",
    "=a",
    "app in (",
    "app in ()",
    "app in (,)",
    "tier>1",
    "tier<3",
    "tier>x",
    "é=a",
    "x/y/z=a",
    "app notin (a",
    "app,,tier",
    ",",
    "app=a,",
    "app=a b",
    "example.com/x=y",
    "/x=y",
    "app=!",
    "!app=a",
    "app exists",
    "app in a",
    "app=-a",
    "kubernetes.io/metadata.name=fixtures",
];
const FIELDS: &[&str] = &[
    "metadata.name=c1",
    "metadata.name!=c1",
    "metadata.namespace=fixtures",
    "metadata.namespace=other",
    "spec.nodeName=n1",
    "spec.nodeName=",
    "status.phase=Running",
    "status.phase!=Running",
    "spec.foo=1",
    "metadata.name",
    "metadata.name=",
    "type=Opaque",
    "type!=Opaque",
    "involvedObject.name=x",
    "involvedObject.kind=Pod,reason=R",
    "a=b=c",
    "metadata.name=c1,metadata.name=c2",
    "metadata.labels.app=a",
    "metadata.name==c1",
    "spec.unschedulable=true",
    "spec.unschedulable=false",
    "status.successful=0",
    "spec.signerName=x/y",
    "metadata.name=c\\,1",
    "metadata.name=c\\1",
    "=",
    ",",
    "metadata.name=c1,",
    "spec.restartPolicy=Always",
    "status.podIP=",
    "spec.hostNetwork=true",
    "spec.clusterIP=None",
    "spec.type=ClusterIP",
    "METADATA.NAME=c1",
    "spec.color=red",
    "spec.color!=red,metadata.name!=s3",
    "spec.replicas=2",
    "spec.on=true",
    "spec.on=",
];
const ACCEPTS: &[&str] = &[
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
    "*/*",
    "application/*",
    "text/html",
    "text/plain",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
    "application/json;as=Other;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=v9;g=meta.k8s.io,application/yaml",
    "application/yaml;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
    "application/json;q=0.1,application/yaml",
    "application/json;charset=utf-8",
    "application/json;stream=watch",
    "application/json;pretty=1",
    "",
    "application/json;as=Table",
    "nonsense",
    "application/vnd.kubernetes.protobuf,application/json",
    "application/xml, application/json;q=0.5",
];

pub(super) fn draw(random: &mut Random, all: &[Served]) -> Request {
    let Some(of) = random.pick(all).cloned() else {
        return Request {
            method: "GET",
            path: "/".to_owned(),
            options: Vec::new(),
            accept: "",
            body: String::new(),
            what: "root",
        };
    };
    let mut request = Request {
        method: "GET",
        path: of.collection.clone(),
        options: Vec::new(),
        accept: "application/json",
        body: String::new(),
        what: "list",
    };
    if random.percent(40) {
        request.accept = random.pick(ACCEPTS).copied().unwrap_or_default();
    }
    let name = match random.percent(85) {
        true => random.pick(&of.objects).map_or_else(|| "missing".to_owned(), Served::name),
        false => ["missing", "A b", "c1%2F"][random.below(3)].replace(' ', "%20"),
    };
    match random.below(100) {
        0..40 => {
            if random.percent(30) {
                request.path = of.everywhere.clone();
            }
            list_options(random, &mut request);
        }
        40..56 => {
            request.what = "get";
            request.path = format!("{}/{name}", of.collection);
            get_options(random, &mut request);
        }
        56..64 => {
            request.what = "get of a subresource";
            let some = [
                "status", "scale", "log", "exec", "proxy", "binding", "eviction", "token",
                "finalize", "other", "status/x",
            ];
            let subresource = match random.percent(70) {
                true => random.pick(&of.subresources).copied().unwrap_or("status"),
                false => some[random.below(some.len())],
            };
            request.path = format!("{}/{name}/{subresource}", of.collection);
            get_options(random, &mut request);
        }
        64..80 => {
            request.what = "watch";
            if random.percent(30) {
                request.path = of.everywhere.clone();
            }
            watch_options(random, &mut request);
        }
        80..84 => {
            request.what = "watch of one";
            request.path = format!("{}/{name}", of.collection);
            watch_options(random, &mut request);
        }
        84..86 => {
            request.what = "old watch path";
            let path = of.collection.replacen("/v1/", "/v1/watch/", 1);
            request.path = if random.percent(50) { path } else { format!("{path}/{name}") };
            watch_options(random, &mut request);
            request.options.retain(|(name, _)| *name != "watch");
        }
        86..92 => {
            request.what = "delete";
            request.method = "DELETE";
            request.path = format!("{}/{name}", of.collection);
            delete_options(random, &mut request);
        }
        92..95 => {
            request.what = "delete of a collection";
            request.method = "DELETE";
            list_options(random, &mut request);
            request.options.retain(|(name, _)| !matches!(*name, "watch" | "dryRun"));
            delete_options(random, &mut request);
        }
        _ => {
            request.what = "other";
            other(random, &of, &name, &mut request);
        }
    }
    request
}

fn pick(random: &mut Random, some: &[&str]) -> String {
    random.pick(some).copied().unwrap_or_default().to_owned()
}

fn list_options(random: &mut Random, request: &mut Request) {
    let mut add = |name: &'static str, value: String| request.options.push((name, value));
    if random.percent(35) {
        add("limit", pick(random, &["1", "2", "3", "5", "0", "-1", "abc", "1000", "", "1.5"]));
    }
    if random.percent(15) {
        let some = [
            TOKEN,
            TOKEN,
            TOKEN,
            "abc",
            "",
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJ4In0",
            "e30",
            "eyJ2Ijoib3RoZXIifQ",
        ];
        add("continue", pick(random, &some));
    }
    if random.percent(35) {
        let some = ["0", REVISION, REVISION, "abc", "-1", "", "00", "1.0", "18446744073709551616"];
        add("resourceVersion", pick(random, &some));
    }
    if random.percent(25) {
        add("resourceVersionMatch", pick(random, &["Exact", "NotOlderThan", "", "Other"]));
    }
    if random.percent(30) {
        add("labelSelector", pick(random, LABELS));
    }
    if random.percent(25) {
        add("fieldSelector", pick(random, FIELDS));
    }
    if random.percent(6) {
        add("timeoutSeconds", pick(random, &["1", "abc", "-1", "0", "1e3"]));
    }
    if random.percent(5) {
        add("sendInitialEvents", pick(random, &["true", "false", "abc", ""]));
    }
    if random.percent(5) {
        add("allowWatchBookmarks", pick(random, &["true", "abc"]));
    }
    if random.percent(6) {
        add("includeObject", pick(random, &["None", "Metadata", "Object", "Other", ""]));
    }
    if random.percent(6) {
        add("pretty", pick(random, &["true", "false", "1", "abc"]));
    }
    if random.percent(3) {
        add("watch", pick(random, &["false", "0", "abc", "False", "no"]));
        add("timeoutSeconds", "1".to_owned());
    }
    if random.percent(4) {
        add("unknown", "1".to_owned());
    }
}

fn get_options(random: &mut Random, request: &mut Request) {
    let mut add = |name: &'static str, value: String| request.options.push((name, value));
    if random.percent(15) {
        add("resourceVersion", pick(random, &["0", REVISION, "abc", "-1", ""]));
    }
    if random.percent(8) {
        add("pretty", pick(random, &["true", "false", "abc"]));
    }
    if random.percent(8) {
        add("includeObject", pick(random, &["None", "Metadata", "Object", "Other"]));
    }
    if random.percent(4) {
        add("limit", "1".to_owned());
    }
    if random.percent(4) {
        add("labelSelector", pick(random, &["app=a", "a b"]));
    }
}

fn watch_options(random: &mut Random, request: &mut Request) {
    list_options(random, request);
    request.options.retain(|(name, _)| {
        !matches!(*name, "watch" | "timeoutSeconds" | "sendInitialEvents" | "allowWatchBookmarks")
    });
    let mut add = |name: &'static str, value: String| request.options.push((name, value));
    add("watch", pick(random, &["true", "true", "1", ""]));
    if random.percent(30) {
        add("allowWatchBookmarks", pick(random, &["true", "false", "abc"]));
    }
    if random.percent(30) {
        add("sendInitialEvents", pick(random, &["true", "true", "false", "abc", ""]));
    }
    add("timeoutSeconds", "1".to_owned());
}

fn delete_options(random: &mut Random, request: &mut Request) {
    let mut add = |name: &'static str, value: &str| request.options.push((name, value.to_owned()));
    if random.percent(25) {
        add(
            "propagationPolicy",
            ["Orphan", "Background", "Foreground", "Other", ""][random.below(5)],
        );
    }
    if random.percent(20) {
        add("gracePeriodSeconds", ["0", "1", "-1", "abc", "30"][random.below(5)]);
    }
    if random.percent(10) {
        add("orphanDependents", ["true", "false", "abc"][random.below(3)]);
    }
    add("dryRun", "All");
    let bodies = [
        json!({}),
        json!({"propagationPolicy": "Orphan"}),
        json!({"propagationPolicy": "Other"}),
        json!({"gracePeriodSeconds": -5}),
        json!({"gracePeriodSeconds": "1"}),
        json!({"preconditions": {"uid": "other"}}),
        json!({"preconditions": {"resourceVersion": "1"}}),
        json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}),
        json!({"kind": "DeleteOptions", "apiVersion": "v9", "dryRun": ["All"]}),
        json!({"kind": "Other", "apiVersion": "v1"}),
        json!({"dryRun": ["Other"]}),
        json!({"orphanDependents": true, "propagationPolicy": "Foreground"}),
        json!({"unknown": 1}),
        json!([]),
        json!("x"),
    ];
    if random.percent(45) {
        let mut body = bodies[random.below(bodies.len())].clone();
        // A body takes the place of the options in the URL.
        if let Some(members) = body.as_object_mut() {
            members.entry("dryRun").or_insert_with(|| json!(["All"]));
        }
        request.body = body.to_string();
    }
    if random.percent(2) {
        request.body = "{".to_owned();
    }
}

fn other(random: &mut Random, of: &Served, name: &str, request: &mut Request) {
    let object = format!("{}/{name}", of.collection);
    let paths = [
        "/",
        "/api",
        "/api/",
        "/apis",
        "/apis/",
        "/api/v1",
        "/api/v1/",
        "/api/v2",
        "/apis/apps",
        "/apis/apps/v1",
        "/apis/apps/v9",
        "/apis/nope",
        "/apis/nope/v1",
        "/apis/nope/v1/things",
        "/api/v1/nope",
        "/api/v1/namespaces/fixtures/nope",
        "/api/v1/namespaces/nope/configmaps",
        "/apis/batch/v1",
        "/apis/example.com",
        "/version",
        "/version/",
        "/healthz",
        "/livez",
        "/readyz",
        "/livez/ping",
        "/healthz/nope",
        "/readyz?verbose",
        "/openapi",
        "/openapi/v3",
        "/openapi/v3/api/v1?hash=x",
        "/nope",
        "/api/v1/namespaces//configmaps",
        "/api//v1",
        "/api/v1/namespaces/fixtures",
        "/api/v1/componentstatuses",
        "/logs",
        "/metrics/nope",
        "/.well-known/openid-configuration",
        "/openid/v1/jwks",
        "/api/v1/pods/x",
        "/api/v1/nodes/x/proxy/",
        "/apis/apps/v1/namespaces/fixtures/deployments/",
    ];
    match random.below(10) {
        0..6 => request.path = paths[random.below(paths.len())].to_owned(),
        6 => {
            request.method = "HEAD";
            request.path = if random.percent(50) { of.collection.clone() } else { object };
        }
        7 => {
            request.method = "OPTIONS";
            request.path = object;
        }
        8 => {
            request.method = ["POST", "PUT", "PATCH"][random.below(3)];
            request.path = if random.percent(50) { of.collection.clone() } else { object };
            request.body = ["", "{", "[]", "x"][random.below(4)].to_owned();
            request.options.push(("dryRun", "All".to_owned()));
        }
        _ => {
            request.method = ["FOO", "TRACE", "get", "LIST"][random.below(4)];
            request.path = of.collection.clone();
        }
    }
}
