//! The options of connections to pods, Services and nodes, as admission sees them.

use crate::query::{Query, decode_path};
use serde_json::{Map, Value};
use setpoint_object::ApiError;
use setpoint_object::field::quote;
use setpoint_registry::Subresource;

/// Reads the options of a connection from the query and the path: `PodExecOptions` and so on. As in
/// kube-apiserver, only the zero values of commands are written. `has_namespace`: so has the path.
///
/// # Errors
///
/// 400 for texts that are no ports.
pub(crate) fn options(
    subresource: &Subresource,
    has_namespace: bool,
    query: &Query,
    path: &str,
) -> Result<Value, ApiError> {
    let mut options = Map::new();
    match subresource {
        Subresource::Exec | Subresource::Attach => {
            for name in ["stdin", "stdout", "stderr", "tty"] {
                if query.flag(name) == Some(true) {
                    options.insert(name.to_owned(), true.into());
                }
            }
            set_text(&mut options, "container", query.text("container"));
            if *subresource == Subresource::Exec {
                let command: Vec<&str> = query.all("command").collect();
                let command = if command.is_empty() { Value::Null } else { command.into() };
                options.insert("command".to_owned(), command);
            }
        }
        Subresource::PortForward => {
            let words = query.all("ports").flat_map(|text| text.split(','));
            let ports: Vec<u16> = words.map(port).collect::<Result<_, _>>()?;
            if !ports.is_empty() {
                options.insert("ports".to_owned(), ports.into());
            }
        }
        Subresource::Proxy => set_text(&mut options, "path", &rest(has_namespace, path)),
        _ => {}
    }
    Ok(Value::Object(options))
}

fn set_text(options: &mut Map<String, Value>, name: &str, text: &str) {
    if !text.is_empty() {
        options.insert(name.to_owned(), text.into());
    }
}

/// A number of 16 bits without a sign.
fn port(word: &str) -> Result<u16, ApiError> {
    let is_number = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    word.parse().ok().filter(|_| is_number).ok_or_else(|| {
        let why = if is_number { "value out of range" } else { "invalid syntax" };
        let text = quote(word);
        ApiError::bad_request(format!(
            "cannot convert to []int32: strconv.ParseUint: parsing {text}: {why}"
        ))
    })
}

/// The part of a path after `proxy`.
fn rest(has_namespace: bool, path: &str) -> String {
    let path = decode_path(path).unwrap_or_default();
    // `/api/v1/nodes/{name}/proxy`, `/api/v1/namespaces/{namespace}/pods/{name}/proxy`.
    let n_before = if has_namespace { 7 } else { 5 };
    let segments: Vec<&str> = path.trim_matches('/').split('/').skip(n_before).collect();
    let mut rest = segments.join("/");
    if !rest.is_empty() && !rest.starts_with('/') {
        rest.insert(0, '/');
    }
    if path.ends_with('/') && !rest.ends_with('/') {
        rest.push('/');
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn options_are_those_of_the_query() {
        let read = |subresource: Subresource, query: &str| {
            let read = options(&subresource, true, &Query::parse(query), "/");
            read.map_err(|error| error.0.message)
        };
        let exec =
            read(Subresource::Exec, "command=ls&command=-l&stdin=false&stdout&tty=1&container=c");
        let want = json!({"stdout": true, "tty": true, "container": "c", "command": ["ls", "-l"]});
        assert_eq!(exec.unwrap(), want);
        assert_eq!(read(Subresource::Exec, "").unwrap(), json!({"command": null}));
        let attach = read(Subresource::Attach, "command=ls&stderr=true&stdin=0");
        assert_eq!(attach.unwrap(), json!({"stderr": true}));
        let ports = read(Subresource::PortForward, "ports=80,443&ports=8080");
        assert_eq!(ports.unwrap(), json!({"ports": [80, 443, 8080]}));
        assert_eq!(read(Subresource::PortForward, "").unwrap(), json!({}));
        for (text, why) in
            [("", "invalid syntax"), ("+5", "invalid syntax"), ("65536", "value out of range")]
        {
            let error =
                read(Subresource::PortForward, &format!("ports={}", text.replace('+', "%2B")));
            let want =
                format!("cannot convert to []int32: strconv.ParseUint: parsing \"{text}\": {why}");
            assert_eq!(error.unwrap_err(), want);
        }
    }

    #[test]
    fn the_path_of_a_proxy_is_the_rest() {
        let (pod, node) = ("/api/v1/namespaces/n/pods/a/proxy", "/api/v1/nodes/a/proxy");
        for (has_namespace, start) in [(true, pod), (false, node)] {
            for (rest, path) in [
                ("", None),
                ("/", Some("/")),
                ("/x", Some("/x")),
                ("/x/", Some("/x/")),
                ("/x%20y//z", Some("/x y//z")),
            ] {
                let at = format!("{start}{rest}");
                let read =
                    options(&Subresource::Proxy, has_namespace, &Query::default(), &at).unwrap();
                assert_eq!(read.get("path").and_then(Value::as_str), path, "{start}{rest}");
            }
        }
    }
}
