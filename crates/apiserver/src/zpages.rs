//! `/statusz` and `/flagz`: the process and its options, for people who look for a fault.
//!
//! As text, or in the structure that an `Accept` header names:
//! `application/json;as=Statusz;v=v1beta1;g=config.k8s.io`. In CBOR, too, if the server has it.

use crate::body::Body;
use crate::negotiate::{Accepted, Clause, Encoding, Types, clauses};
use crate::respond::{self, Style};
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;
use setpoint_object::{ApiError, Reason};
use setpoint_registry::Release;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The path of the state of the process.
pub(crate) const STATUSZ: &str = "/statusz";
/// The path of its options.
pub(crate) const FLAGZ: &str = "/flagz";

/// The component, as kube-apiserver calls itself here.
const COMPONENT: &str = "apiserver";
const GROUP: &str = "config.k8s.io";
/// Roots of paths that are no help in a search for a fault.
const NOT_FOR_DEBUGGING: [&str; 5] = ["/apis", "/api", "/openid", "/openapi", "/.well-known"];
const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY_SECONDS: u64 = 24 * 60 * 60;
/// The first day of 1970 was a Thursday.
const FIRST_DAY: u64 = 4;

/// One of the pages.
#[derive(Debug)]
pub(crate) enum Page<'a> {
    /// `/statusz`.
    Status {
        /// When the server was built.
        started: Timestamp,
        /// The present time.
        now: Timestamp,
        /// The release whose API the server has.
        emulated: Release,
        /// Every served path.
        paths: Vec<String>,
    },
    /// `/flagz`: the options by name.
    Flags(&'a BTreeMap<String, String>),
}

/// The form of a page.
#[derive(Debug, PartialEq)]
enum Form {
    Text,
    Structure { accepted: Accepted, version: &'static str },
}

impl Page<'_> {
    /// Answers a request.
    ///
    /// # Errors
    ///
    /// 406 if no form is acceptable.
    pub(crate) fn respond(
        &self,
        accept: &str,
        types: Types,
        style: Style,
    ) -> Result<Response<Body>, ApiError> {
        let (accepted, version) = match form(accept, self.kind(), types)? {
            Form::Text => return Ok(respond::text(StatusCode::OK, self.text())),
            Form::Structure { accepted, version } => (accepted, version),
        };
        let json = self.structure(version);
        let mut response = respond::document(StatusCode::OK, accepted, style, json);
        let (media_type, kind) = (accepted.encoding.media_type(), self.kind());
        let headers = response.headers_mut();
        let media_type = format!("{media_type};g={GROUP};v={version};as={kind}");
        if let Ok(value) = HeaderValue::try_from(media_type) {
            headers.insert(header::CONTENT_TYPE, value);
        }
        if version == "v1alpha1" {
            let name = kind.to_lowercase();
            let text = format!(
                "299 - \"This version of the {name} endpoint is deprecated. Please use a newer version.\""
            );
            headers.extend(HeaderValue::try_from(text).ok().map(|text| (header::WARNING, text)));
        }
        Ok(response)
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Status { .. } => "Statusz",
            Self::Flags(_) => "Flagz",
        }
    }

    fn text(&self) -> String {
        let mut out = format!(
            "\n{COMPONENT} {}\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n",
            self.kind().to_lowercase()
        );
        // Writing to a String does not fail.
        let _ = match self {
            Self::Status { started, now, emulated, paths } => {
                let up = now.since(*started).as_secs();
                let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
                let version = Release::PRESENT;
                writeln!(
                    out,
                    "\nStarted: {}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\nGo version: \nBinary version: {version}\nEmulation version: {emulated}\nPaths: {}",
                    unix_date(*started),
                    roots(paths).join(" ")
                )
            }
            Self::Flags(flags) => flags.iter().try_for_each(|(n, v)| writeln!(out, "{n}: {v}")),
        };
        out
    }

    /// The members in their order.
    fn structure(&self, version: &str) -> Bytes {
        let mut members: Vec<(&str, Value)> = vec![
            ("kind", self.kind().into()),
            ("apiVersion", format!("{GROUP}/{version}").into()),
            ("metadata", json!({"name": COMPONENT})),
        ];
        match self {
            Self::Status { started, now, emulated, paths } => members.extend([
                ("startTime", started.rfc3339().into()),
                ("uptimeSeconds", now.since(*started).as_secs().into()),
                ("goVersion", "".into()),
                ("binaryVersion", Release::PRESENT.to_string().into()),
                ("emulationVersion", emulated.to_string().into()),
                ("paths", roots(paths).into()),
            ]),
            Self::Flags(flags) => members.push(("flags", json!(flags))),
        }
        let members: Vec<_> = members.iter().map(|(name, v)| format!("\"{name}\":{v}")).collect();
        format!("{{{}}}", members.join(",")).into()
    }
}

/// The first segments of paths, sorted.
fn roots(paths: &[String]) -> Vec<&str> {
    let root = |path: &'_ String| path[1..].split('/').next().map_or(0, |segment| segment.len());
    let roots: BTreeSet<&str> =
        paths.iter().filter(|path| path.len() > 1).map(|path| &path[..=root(path)]).collect();
    roots.into_iter().filter(|root| !NOT_FOR_DEBUGGING.contains(root)).collect()
}

/// As `date` prints a time: `Wed Nov 25 08:04:38 UTC 2026`.
fn unix_date(time: Timestamp) -> String {
    let text = time.rfc3339();
    let day = usize::try_from((time.0.as_secs() / DAY_SECONDS + FIRST_DAY) % 7).unwrap_or(0);
    let number = |range: std::ops::Range<usize>| {
        text.get(range).and_then(|digits| digits.parse::<usize>().ok()).unwrap_or(1)
    };
    let month = MONTHS.get(number(5..7) - 1).unwrap_or(&"Jan");
    let (clock, year) = (text.get(11..19).unwrap_or_default(), text.get(..4).unwrap_or_default());
    format!("{} {month} {:2} {clock} UTC {year}", DAYS[day], number(8..10))
}

/// Chooses the form: the first that the best clause can name.
fn form(accept: &str, kind: &str, types: Types) -> Result<Form, ApiError> {
    if accept.is_empty() {
        return Ok(Form::Text);
    }
    let cbor = types.cbor.then_some(Encoding::Cbor);
    let encodings = || [Encoding::Json, Encoding::Yaml].into_iter().chain(cbor);
    let chosen = clauses(accept).iter().find_map(|clause| {
        let structure = || {
            // Wildcards mean JSON.
            let encoding = encodings().find(|encoding| clause.means(*encoding))?;
            let accepted = Accepted {
                encoding,
                pretty: clause.param("pretty") == Some("1"),
                ..Accepted::default()
            };
            Some(Form::Structure { accepted, version: version_of(clause, kind)? })
        };
        let is_text = matches!(clause.media_type(), ("text", "plain" | "*") | ("*", "*"));
        let is_bare = ["as", "g", "v"].iter().all(|name| clause.param(name).is_none());
        let has_stream = ["stream", "sv"]
            .iter()
            .any(|name| clause.param(name).is_some_and(|value| !value.is_empty()));
        if has_stream {
            return None;
        }
        structure().or_else(|| (is_text && is_bare).then_some(Form::Text))
    });
    chosen.ok_or_else(|| {
        let mut types =
            vec![Encoding::Json.media_type(), Encoding::Yaml.media_type(), "text/plain"];
        types.extend(cbor.map(Encoding::media_type));
        let text = format!("only the following media types are accepted: {}", types.join(", "));
        ApiError::new(406, Reason::NotAcceptable, text)
    })
}

/// The version that a clause asks for.
fn version_of(clause: &Clause<'_>, kind: &str) -> Option<&'static str> {
    if clause.param("as") != Some(kind) || clause.param("g") != Some(GROUP) {
        return None;
    }
    ["v1beta1", "v1alpha1"].into_iter().find(|version| clause.param("v") == Some(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Page<'static> {
        let paths = ["/", "/api", "/apis/apps", "/livez/ping", "/livez", "/statusz", "/version"];
        Page::Status {
            started: Timestamp::from_secs(1_795_593_878),
            now: Timestamp::from_secs(1_795_593_878 + 3723),
            emulated: Release::PRESENT,
            paths: paths.map(str::to_owned).into(),
        }
    }

    fn get(page: &Page<'_>, accept: &str) -> (u16, String, String) {
        let style = Style { pretty: false, gzip: false };
        let response = match page.respond(accept, Types::default(), style) {
            Ok(response) => response,
            Err(error) => return (error.code(), String::new(), error.0.message),
        };
        let body = String::from_utf8(response.body().as_bytes().unwrap().to_vec()).unwrap();
        let media_type = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
        (response.status().as_u16(), media_type, body)
    }

    #[test]
    fn the_state_is_a_text_or_a_structure() {
        let lines = "\nStarted: Wed Nov 25 08:04:38 UTC 2026\nUp: 1 hr 02 min 03 sec\n";
        for accept in ["", "text/plain", "*/*", "text/html, */*"] {
            let (code, media_type, body) = get(&status(), accept);
            assert_eq!((code, &*media_type), (200, "text/plain; charset=utf-8"));
            assert!(body.starts_with("\napiserver statusz\nWarning: "), "{body}");
            assert!(body.contains(lines) && body.ends_with("\nPaths: /livez /statusz /version\n"));
        }
        let (code, media_type, body) =
            get(&status(), "application/json;as=Statusz;v=v1beta1;g=config.k8s.io");
        assert_eq!(code, 200);
        assert_eq!(media_type, "application/json;g=config.k8s.io;v=v1beta1;as=Statusz");
        assert_eq!(
            body,
            "{\"kind\":\"Statusz\",\"apiVersion\":\"config.k8s.io/v1beta1\",\"metadata\":{\"name\":\"apiserver\"},\"startTime\":\"2026-11-25T08:04:38Z\",\"uptimeSeconds\":3723,\"goVersion\":\"\",\"binaryVersion\":\"1.36\",\"emulationVersion\":\"1.36\",\"paths\":[\"/livez\",\"/statusz\",\"/version\"]}\n"
        );
    }

    #[test]
    fn other_forms_are_not_acceptable() {
        let types = "only the following media types are accepted: application/json, application/yaml, text/plain";
        for accept in [
            "application/json",
            "application/json;as=Flagz;v=v1beta1;g=config.k8s.io",
            "application/json;as=Statusz;v=v1;g=config.k8s.io",
            "application/vnd.kubernetes.protobuf",
        ] {
            let (code, _, message) = get(&status(), accept);
            assert_eq!((code, &*message), (406, types), "{accept}");
        }
    }

    #[test]
    fn the_structure_is_in_cbor_if_the_server_has_it() {
        let style = Style { pretty: false, gzip: false };
        let types = Types { cbor: true };
        let accept = "application/cbor;v=v1beta1;g=config.k8s.io;as=Statusz";
        let response = status().respond(accept, types, style).unwrap();
        assert_eq!(
            response.headers()[header::CONTENT_TYPE],
            "application/cbor;g=config.k8s.io;v=v1beta1;as=Statusz"
        );
        let body = response.body().as_bytes().unwrap().to_vec();
        assert_eq!(body[..3], [0xd9, 0xd9, 0xf7], "the mark of CBOR");
        let (_, media_type, _) =
            get(&status(), "application/*;v=v1beta1;g=config.k8s.io;as=Statusz");
        assert!(media_type.starts_with("application/json;"), "{media_type}");
        let Err(error) = status().respond("application/cbor", types, style) else { panic!() };
        assert!(error.0.message.ends_with("text/plain, application/cbor"), "{}", error.0.message);
        assert_eq!(get(&status(), accept).0, 406);
    }

    #[test]
    fn options_are_listed_by_name() {
        let flags = [("b", "2"), ("a", "")].map(|(n, v)| (n.to_owned(), v.to_owned())).into();
        let page = Page::Flags(&flags);
        assert!(get(&page, "").2.ends_with("purposes only.\na: \nb: 2\n"));
        let (_, media_type, body) =
            get(&page, "application/yaml;as=Flagz;v=v1alpha1;g=config.k8s.io");
        assert_eq!(media_type, "application/yaml;g=config.k8s.io;v=v1alpha1;as=Flagz");
        assert!(body.contains("flags:\n  a: ''\n  b: '2'\n") || body.contains("flags:"), "{body}");
    }
}
