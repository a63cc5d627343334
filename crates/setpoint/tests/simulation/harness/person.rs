//! A user's client for plain JSON, which meets no faults.

use kube_client::Client;
use serde_json::{Value, json};
use std::time::Duration;

/// A user's client. [`World::ask`](super::World::ask) provides it.
#[derive(Clone)]
pub(crate) struct Person {
    pub(crate) client: Client,
}

impl Person {
    /// Sends a request, retried on 429 and 5xx. Returns the response or error.
    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<Value, kube_client::Error> {
        loop {
            match self.request_once(method, path, content_type, body).await {
                Err(kube_client::Error::Api(status))
                    if status.code == 429 || status.code >= 500 =>
                {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                answer => return answer,
            }
        }
    }

    async fn request_once(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<Value, kube_client::Error> {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .body(body)
            .unwrap();
        self.client.request(request).await
    }

    /// The object; `None` if it does not exist.
    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        match self.request("GET", path, "application/json", &Value::Null).await {
            Ok(object) => Some(object),
            Err(kube_client::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// The items of a collection.
    pub(crate) async fn list(&self, path: &str) -> Vec<Value> {
        let list = self.get(path).await.unwrap();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Creates an object in a collection; it may already exist.
    pub(crate) async fn create(&self, path: &str, object: &Value) {
        match self.request("POST", path, "application/json", object).await {
            Ok(_) => {}
            Err(kube_client::Error::Api(status)) if status.code == 409 => {}
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// Applies a merge patch, if the object exists.
    pub(crate) async fn patch(&self, path: &str, patch: &Value) {
        match self.request("PATCH", path, "application/merge-patch+json", patch).await {
            Ok(_) => {}
            Err(kube_client::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// Deletes an object, if it exists.
    pub(crate) async fn delete(&self, path: &str) {
        match self.request("DELETE", path, "application/json", &Value::Null).await {
            Ok(_) => {}
            Err(kube_client::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{path}: {error}"),
        }
    }
}

/// ConfigMaps of a namespace, or one of them.
pub(crate) fn maps(namespace: &str, name: &str) -> String {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
    path.trim_end_matches('/').to_owned()
}

/// A ConfigMap manifest with data.
pub(crate) fn map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// A controller owner reference.
pub(crate) fn owner(object: &Value) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"], "controller": true,
    })
}
