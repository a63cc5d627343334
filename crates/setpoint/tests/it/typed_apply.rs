//! Typed server-side apply over a real API server: owners, conflicts, lists with keys,
//! subresources, custom types.

use crate::client_calls::{key, plain};
use expect_test::expect;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::core::v1::{ConfigMap, Container, ResourceRequirements, Service};
use kube_core::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use setpoint::prelude::*;
use setpoint::runtime::crd::install_and_wait;

/// The fields that each manager owns, as paths.
fn owners(object: &impl ResourceExt) -> String {
    fn paths(fields: &Value, path: &str, out: &mut Vec<String>) {
        let members = fields.as_object().unwrap();
        if members.is_empty() || members.contains_key(".") {
            out.push(path.trim_start_matches('/').to_owned());
        }
        for (name, fields) in members.iter().filter(|(name, _)| *name != ".") {
            let name = name.strip_prefix("f:").unwrap_or(name);
            paths(fields, &format!("{path}/{name}"), out);
        }
    }
    let mut lines = Vec::new();
    for entry in object.managed_fields() {
        let mut of_entry = Vec::new();
        let fields = serde_json::to_value(entry.fields_v1.as_ref().unwrap()).unwrap();
        paths(&fields, "", &mut of_entry);
        lines.push(format!("{}: {}", entry.manager.as_ref().unwrap(), of_entry.join(" ")));
    }
    lines.join("\n")
}

fn web(manager: &str) -> Apply<Deployment> {
    let labels = [("app", "web")];
    Apply::<Deployment>::new(&key("web")).field_manager(manager).fields(|deployment| {
        deployment.spec(|spec| {
            spec.replicas(2).selector(|selector| selector.match_labels(labels)).template(
                |template| {
                    template.metadata(|metadata| metadata.labels(labels)).spec(|pod| {
                        pod.container("web", |container| {
                            container
                                .image("nginx")
                                .port(80, "TCP", |port| port.name("http"))
                                .env("COLOR", |env| env.value("red"))
                                .resources(|resources| resources.limits([("cpu", "500m")]))
                        })
                        .volume("scratch", |volume| volume.empty_dir(|empty| empty))
                    })
                },
            )
        })
    })
}

#[tokio::test(start_paused = true)]
async fn only_fields_that_are_set_are_owned() {
    let world = plain().await;
    let deployments = world.client.api::<Deployment>();
    let made = deployments.apply(&web("me")).await.unwrap();
    expect![[r#"me: spec/replicas spec/selector spec/template/metadata/labels/app spec/template/spec/containers/k:{"name":"web"} spec/template/spec/containers/k:{"name":"web"}/env/k:{"name":"COLOR"} spec/template/spec/containers/k:{"name":"web"}/env/k:{"name":"COLOR"}/name spec/template/spec/containers/k:{"name":"web"}/env/k:{"name":"COLOR"}/value spec/template/spec/containers/k:{"name":"web"}/image spec/template/spec/containers/k:{"name":"web"}/name spec/template/spec/containers/k:{"name":"web"}/ports/k:{"containerPort":80,"protocol":"TCP"} spec/template/spec/containers/k:{"name":"web"}/ports/k:{"containerPort":80,"protocol":"TCP"}/containerPort spec/template/spec/containers/k:{"name":"web"}/ports/k:{"containerPort":80,"protocol":"TCP"}/name spec/template/spec/containers/k:{"name":"web"}/ports/k:{"containerPort":80,"protocol":"TCP"}/protocol spec/template/spec/containers/k:{"name":"web"}/resources/limits/cpu spec/template/spec/volumes/k:{"name":"scratch"} spec/template/spec/volumes/k:{"name":"scratch"}/emptyDir spec/template/spec/volumes/k:{"name":"scratch"}/name"#]]
    .assert_eq(&owners(&made));

    // The same again changes nothing.
    let again = deployments.apply(&web("me")).await.unwrap();
    assert_eq!(again.metadata.resource_version, made.metadata.resource_version);

    // Another manager sets one field of one container: `required` fields are not claimed by it.
    let image = |image: &str| {
        Apply::<Deployment>::new(&key("web")).field_manager("other").fields(|deployment| {
            deployment.spec(|spec| {
                spec.template(|template| {
                    template.spec(|pod| pod.container("web", |container| container.image(image)))
                })
            })
        })
    };
    let conflict = deployments.apply(&image("httpd")).await.unwrap_err();
    assert!(conflict.is_conflict(), "{conflict:?}");
    let forced = deployments.apply(&image("httpd").force()).await.unwrap();
    let owned = owners(&forced);
    let other = owned.lines().find(|line| line.starts_with("other")).unwrap();
    expect![[r#"other: spec/template/spec/containers/k:{"name":"web"} spec/template/spec/containers/k:{"name":"web"}/image spec/template/spec/containers/k:{"name":"web"}/name"#]]
        .assert_eq(other);
    let containers: Vec<Container> = forced.spec.template.spec.unwrap().containers;
    assert_eq!(containers[0].image.as_deref(), Some("httpd"));
    assert_eq!(containers[0].env.as_ref().unwrap()[0].value.as_deref(), Some("red"));
    // The cache shows it to its writer.
    world.cache_maps().await;
}

#[tokio::test(start_paused = true)]
async fn reads_show_own_applies_and_values_have_their_forms_on_the_wire() {
    let world = plain().await;
    world.cache_maps().await;
    let maps = world.client.api::<ConfigMap>();
    let apply = Apply::<ConfigMap>::new(&key("a"))
        .fields(|map| map.data([("k", "v")]).binary_data([("b", b"\x00\x01")]).immutable(false));
    maps.apply(&apply).await.unwrap();
    let read = maps.get_own(&key("a")).await.unwrap().unwrap();
    assert_eq!(read.data.as_ref().unwrap()["k"], "v");
    assert_eq!(read.binary_data.as_ref().unwrap()["b"].0, [0, 1]);

    let services = world.client.api::<Service>();
    let apply = Apply::<Service>::new(&key("web")).fields(|service| {
        service.spec(|spec| {
            spec.port(80, "TCP", |port| port.name("http").target_port("web"))
                .port(443, "TCP", |port| port.name("https").target_port(8443))
                .if_some(Some("ClientIP"), |spec, value| spec.session_affinity(value))
                .if_some(None::<String>, |spec, value| spec.external_name(value))
        })
    });
    let spec = serde_json::to_value(services.apply(&apply).await.unwrap().spec.unwrap()).unwrap();
    assert_eq!(spec["ports"][0]["targetPort"], "web");
    assert_eq!(spec["ports"][1]["targetPort"], 8443);
    assert_eq!(
        (&spec["sessionAffinity"], &spec["externalName"]),
        (&json!("ClientIP"), &json!(null))
    );
}

#[tokio::test(start_paused = true)]
async fn subresources_are_applied_by_typed_fields() {
    let world = plain().await;
    let deployments = world.client.api::<Deployment>();
    deployments.apply(&web("me")).await.unwrap();
    let apply = Apply::<Scale>::new(&key("web"))
        .fields(|scale| scale.spec(|spec| spec.replicas(4)))
        .force();
    assert_eq!(deployments.scale().apply(&apply).await.unwrap().spec.unwrap().replicas, Some(4));
    let apply = Apply::<Deployment>::new(&key("web")).fields(|deployment| {
        deployment.status(|status| {
            status
                .replicas(3)
                .ready_replicas(3)
                .condition("Available", |condition| condition.status("True"))
        })
    });
    let status = deployments.status().apply(&apply).await.unwrap().status.unwrap();
    assert_eq!(status.ready_replicas, Some(3));
    assert_eq!(serde_json::to_value(&status.conditions).unwrap()[0]["type"], "Available");
}

/// A custom type.
#[derive(CustomResource, Partial, Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.dev",
    version = "v1",
    kind = "Site",
    namespaced,
    status = "SiteStatus",
    printcolumn = r#"{"name": "Image", "type": "string", "jsonPath": ".spec.image"}"#
)]
#[serde(rename_all = "camelCase")]
struct SiteSpec {
    /// A required field.
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_replicas: Option<i32>,
    #[serde(rename = "DNS", default)]
    names: Vec<String>,
    #[partial(nested)]
    resources: Option<ResourceRequirements>,
    #[partial(nested)]
    tls: Option<Tls>,
    #[partial(key = "name")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    #[serde(default)]
    routes: Vec<Route>,
}

#[derive(Partial, Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Tls {
    secret: String,
    r#type: Option<String>,
}

#[derive(Partial, Debug, Clone, Serialize, Deserialize, JsonSchema)]
struct Route {
    name: String,
    path: Option<String>,
}

#[derive(Partial, Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct SiteStatus {
    ready_replicas: Option<i32>,
}

#[tokio::test(start_paused = true)]
async fn derived_partials_set_fields_of_custom_types() {
    let world = plain().await;
    install_and_wait(&world.kube, "me", [Site::crd()]).await.unwrap();
    let sites = world.client.api::<Site>();
    let apply = Apply::<Site>::new(&key("a")).field_manager("me").fields(|site| {
        site.spec(|spec| {
            spec.image("nginx")
                .min_replicas(2)
                .names(vec!["a.example".to_owned()])
                .resources(|resources| resources.requests([("memory", "1Gi")]))
                .tls(|tls| tls.secret("s").r#type("t"))
                .routes("all", |route| route.path("/"))
        })
    });
    let made = sites.apply(&apply).await.unwrap();
    expect![[r#"me: spec/DNS spec/image spec/minReplicas spec/resources/requests/memory spec/routes/k:{"name":"all"} spec/routes/k:{"name":"all"}/name spec/routes/k:{"name":"all"}/path spec/tls/secret spec/tls/type"#]]
        .assert_eq(&owners(&made));
    // Another route is another item; the required image is not claimed.
    let apply = Apply::<Site>::new(&key("a"))
        .field_manager("router")
        .fields(|site| site.spec(|spec| spec.routes("one", |route| route.path("/one"))));
    let routed = sites.apply(&apply).await.unwrap();
    assert_eq!(routed.spec.routes.len(), 2);
    assert!(!owners(&routed).lines().any(|l| l.starts_with("router") && l.contains("image")));

    let apply =
        Apply::<Site>::new(&key("a")).fields(|site| site.status(|status| status.ready_replicas(1)));
    let status = sites.status().apply(&apply).await.unwrap().status.unwrap();
    assert_eq!(status.ready_replicas, Some(1));
}
