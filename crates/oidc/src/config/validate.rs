//! The checks of a configuration, in kube-apiserver's words and order.

use super::email::reads_claim;
use super::{
    AuthenticationConfig, ClaimMappings, Issuer, JWT_MAX, JwtAuthenticator,
    PrefixedClaimOrExpression,
};
use crate::fetch;
use crate::mapping::{Expression, Mapping, Rule, compile_claims, compile_user};
use serde_json::{Value, json};
use setpoint_cel::Checked;
use setpoint_object::field::{Error, Path, quote};
use setpoint_object::name;
use std::collections::HashSet;
use std::sync::Arc;

/// Checks a configuration and compiles its expressions.
///
/// # Errors
///
/// Everything that is wrong.
pub(super) fn validate(
    config: &AuthenticationConfig,
    disallowed: &[String],
) -> Result<Vec<Arc<Mapping>>, Vec<Error>> {
    let root = Path::new("jwt");
    if config.jwt.len() > JWT_MAX {
        return Err(vec![Error::too_many(root, config.jwt.len(), JWT_MAX)]);
    }
    let mut errors = Vec::new();
    let mut mappings = Vec::new();
    let (mut issuers, mut discovery_urls) = (HashSet::new(), HashSet::new());
    for (i, jwt) in config.jwt.iter().enumerate() {
        let path = root.index(i);
        mappings.push(Arc::new(authenticator(jwt, &path, disallowed, &mut errors)));
        let issuer = path.child("issuer");
        let Issuer { url, discovery_url, .. } = &jwt.issuer;
        if !issuers.insert(url) {
            errors.push(Error::duplicate(issuer.child("url"), &json!(url)));
        }
        if !discovery_url.is_empty() && !discovery_urls.insert(discovery_url) {
            let path = issuer.child("discoveryURL");
            errors.push(Error::duplicate(path, &json!(discovery_url)));
        }
    }
    if let Some(anonymous) = &config.anonymous
        && !anonymous.enabled
        && !anonymous.conditions.is_empty()
    {
        let shown = anonymous.conditions.iter().map(|condition| json!({"Path": condition.path}));
        errors.push(Error::invalid(
            Path::new("anonymous").child("conditions"),
            &shown.collect(),
            "enabled should be set to true when conditions are defined",
        ));
    }
    if errors.is_empty() { Ok(mappings) } else { Err(errors) }
}

fn authenticator(
    jwt: &JwtAuthenticator,
    path: &Path,
    disallowed: &[String],
    errors: &mut Vec<Error>,
) -> Mapping {
    issuer(&jwt.issuer, &path.child("issuer"), disallowed, errors);
    let (mut mapping, mut reads_verified) = (Mapping::default(), false);
    let rules = path.child("claimValidationRules");
    claim_rules(jwt, &rules, &mut mapping, &mut reads_verified, errors);
    let mappings = path.child("claimMappings");
    claim_mappings(&jwt.claim_mappings, &mappings, &mut mapping, reads_verified, errors);
    user_rules(jwt, &path.child("userValidationRules"), &mut mapping, errors);
    mapping
}

fn issuer(issuer: &Issuer, path: &Path, disallowed: &[String], errors: &mut Vec<Error>) {
    let url_path = path.child("url");
    match issuer.url.is_empty() {
        true => errors.push(Error::required(url_path, "")),
        false => url(&issuer.url, disallowed, &url_path, errors),
    }
    if !issuer.discovery_url.is_empty() {
        let path = path.child("discoveryURL");
        let same = issuer.url.trim_end_matches('/') == issuer.discovery_url.trim_end_matches('/');
        if !issuer.url.is_empty() && same {
            let value = json!(issuer.discovery_url);
            let detail = "discoveryURL must be different from URL";
            errors.push(Error::invalid(path.clone(), &value, detail));
        }
        url(&issuer.discovery_url, &[], &path, errors);
    }
    audiences(issuer, path, errors);
    let authority = &issuer.certificate_authority;
    if !authority.is_empty()
        && let Err(error) = fetch::roots(authority)
    {
        let path = path.child("certificateAuthority");
        errors.push(Error::invalid(path, &json!("<omitted>"), error.to_string()));
    }
    let selector = &issuer.egress_selector_type;
    if !matches!(&**selector, "" | "controlplane" | "cluster") {
        let path = path.child("egressSelectorType");
        let detail = "egress selector must be either controlplane or cluster";
        errors.push(Error::invalid(path, &json!(selector), detail));
    }
}

fn url(text: &str, disallowed: &[String], path: &Path, errors: &mut Vec<Error>) {
    let mut invalid = |detail: String| {
        errors.push(Error::invalid(path.clone(), &json!(text), detail));
    };
    if disallowed.iter().any(|issuer| issuer == text) {
        let mut sorted = disallowed.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        invalid(format!("URL must not overlap with disallowed issuers: [{}]", sorted.join(" ")));
    }
    if text.contains(|c: char| c.is_ascii_control()) {
        invalid(format!("parse {}: net/url: invalid control character in URL", quote(text)));
        return;
    }
    let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (before, query) = before.split_once('?').unwrap_or((before, ""));
    let (scheme, rest) = before.split_once("://").unwrap_or(("", before));
    let authority = rest.split('/').next().unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("https") {
        invalid("URL scheme must be https".to_owned());
    }
    if !scheme.is_empty() && authority.contains('@') {
        invalid("URL must not contain a username or password".to_owned());
    }
    if !query.is_empty() {
        invalid("URL must not contain a query".to_owned());
    }
    if !fragment.is_empty() {
        invalid("URL must not contain a fragment".to_owned());
    }
    // What Go's parser accepts and no client can reach is refused too.
    let is_usable = text.parse::<http::Uri>().is_ok_and(|url| url.host().is_some());
    if scheme.eq_ignore_ascii_case("https") && fragment.is_empty() && !is_usable {
        invalid(format!("parse {}: invalid URL", quote(text)));
    }
}

fn audiences(issuer: &Issuer, path: &Path, errors: &mut Vec<Error>) {
    let list = path.child("audiences");
    if issuer.audiences.is_empty() {
        let detail = format!("at least one {list} is required");
        errors.push(Error::required(list, detail));
        return;
    }
    let mut seen = HashSet::new();
    for (i, audience) in issuer.audiences.iter().enumerate() {
        if audience.is_empty() {
            errors.push(Error::required(list.index(i), ""));
        }
        if !seen.insert(audience) {
            errors.push(Error::duplicate(list.index(i), &json!(audience)));
        }
    }
    let policy = &issuer.audience_match_policy;
    let detail = match issuer.audiences.len() {
        1 if !matches!(policy.as_str(), "" | "MatchAny") => {
            "audienceMatchPolicy must be empty or MatchAny for single audience"
        }
        2.. if policy != "MatchAny" => {
            "audienceMatchPolicy must be MatchAny for multiple audiences"
        }
        _ => return,
    };
    errors.push(Error::invalid(path.child("audienceMatchPolicy"), &json!(policy), detail));
}

fn claim_rules(
    jwt: &JwtAuthenticator,
    path: &Path,
    mapping: &mut Mapping,
    reads_verified: &mut bool,
    errors: &mut Vec<Error>,
) {
    let (mut claims, mut expressions) = (HashSet::new(), HashSet::new());
    for (i, rule) in jwt.claim_validation_rules.iter().enumerate() {
        let path = path.index(i);
        let both = "claim and expression can't both be set";
        match (rule.claim.is_empty(), rule.expression.is_empty()) {
            (false, false) => errors.push(Error::invalid(path, &json!(rule.claim), both)),
            (true, true) => {
                errors.push(Error::required(path, "claim or expression is required"));
            }
            (false, true) => {
                if !rule.message.is_empty() {
                    let detail = "may not be specified when claim is set";
                    let value = json!(rule.message);
                    errors.push(Error::invalid(path.child("message"), &value, detail));
                }
                if !claims.insert(&rule.claim) {
                    errors.push(Error::duplicate(path.child("claim"), &json!(rule.claim)));
                }
                let required = (rule.claim.clone(), rule.required_value.clone());
                mapping.required_claims.push(required);
            }
            (true, false) => {
                if !rule.required_value.is_empty() {
                    let detail = "may not be specified when expression is set";
                    let value = json!(rule.required_value);
                    errors.push(Error::invalid(path.child("requiredValue"), &value, detail));
                }
                let path = path.child("expression");
                if !expressions.insert(&rule.expression) {
                    errors.push(Error::duplicate(path, &json!(rule.expression)));
                    continue;
                }
                let compiled = compile_claims(&rule.expression, true);
                if let Some(compiled) = taken(compiled, &rule.expression, path, errors) {
                    *reads_verified |= reads_claim(&compiled.ast.root, "email_verified");
                    mapping.claim_rules.push(Rule::new(&compiled, &rule.message));
                }
            }
        }
    }
}

fn claim_mappings(
    wanted: &ClaimMappings,
    path: &Path,
    mapping: &mut Mapping,
    mut reads_verified: bool,
    errors: &mut Vec<Error>,
) {
    let mut reads_email = false;
    let username = path.child("username");
    if let Some(compiled) = prefixed(&wanted.username, &username, true, errors) {
        reads_email = reads_claim(&compiled.ast.root, "email");
        reads_verified |= reads_claim(&compiled.ast.root, "email_verified");
        mapping.username = Some(Expression::new(&compiled));
    }
    if let Some(compiled) = prefixed(&wanted.groups, &path.child("groups"), false, errors) {
        mapping.groups = Some(Expression::new(&compiled));
    }
    let uid = path.child("uid");
    match (wanted.uid.claim.is_empty(), &*wanted.uid.expression) {
        (_, "") => {}
        (false, _) => {
            let detail = "claim and expression can't both be set";
            errors.push(Error::invalid(uid, &json!(""), detail));
        }
        (true, expression) => {
            let compiled = compile_claims(expression, false);
            let path = uid.child("expression");
            if let Some(compiled) = taken(compiled, expression, path, errors) {
                mapping.uid = Some(Expression::new(&compiled));
            }
        }
    }
    let mut keys = HashSet::new();
    for (i, extra) in wanted.extra.iter().enumerate() {
        let path = path.child("extra").index(i);
        extra_key(&extra.key, &path.child("key"), errors);
        if !keys.insert(&extra.key) {
            errors.push(Error::duplicate(path.child("key"), &json!(extra.key)));
            continue;
        }
        let path = path.child("valueExpression");
        if extra.value_expression.is_empty() {
            errors.push(Error::required(path, ""));
            continue;
        }
        let compiled = compile_claims(&extra.value_expression, false);
        if let Some(compiled) = taken(compiled, &extra.value_expression, path, errors) {
            reads_verified |= reads_claim(&compiled.ast.root, "email_verified");
            mapping.extra.push((extra.key.clone(), Expression::new(&compiled)));
        }
    }
    if reads_email && !reads_verified {
        errors.push(Error::invalid(
            username.child("expression"),
            &json!(wanted.username.expression),
            "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression",
        ));
    }
}

fn extra_key(key: &str, path: &Path, errors: &mut Vec<Error>) {
    domain_prefixed_path(key, path, errors);
    if key != key.to_lowercase() {
        errors.push(Error::invalid(path.clone(), &json!(key), "must be lowercase"));
    }
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_within =
        |own: &str| domain == own || domain.strip_suffix(own).is_some_and(|d| d.ends_with('.'));
    if is_within("kubernetes.io") || is_within("k8s.io") {
        let detail = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
        errors.push(Error::invalid(path.clone(), &json!(key), detail));
    }
}

/// A domain, a slash and a path.
fn domain_prefixed_path(key: &str, path: &Path, errors: &mut Vec<Error>) {
    let mut invalid = |value: &str, detail: String| {
        errors.push(Error::invalid(path.clone(), &json!(value), detail));
    };
    match key.split_once('/') {
        _ if key.is_empty() => errors.push(Error::required(path.clone(), "")),
        None => invalid(key, "must be a domain-prefixed path (such as \"acme.io/foo\")".to_owned()),
        Some(("", _)) | Some((_, "")) => {
            invalid(key, "must be a domain-prefixed path (such as \"acme.io/foo\")".to_owned())
        }
        Some((domain, rest)) => {
            for fault in name::dns1123_subdomain(domain) {
                invalid(domain, fault);
            }
            if !rest.bytes().all(is_path_byte) {
                let what = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
                invalid(rest, what.to_owned());
            }
        }
    }
}

fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte)
}

fn prefixed(
    wanted: &PrefixedClaimOrExpression,
    path: &Path,
    is_required: bool,
    errors: &mut Vec<Error>,
) -> Option<Checked> {
    match (wanted.claim.is_empty(), wanted.expression.is_empty()) {
        (false, false) => {
            let detail = "claim and expression can't both be set";
            errors.push(Error::invalid(path.clone(), &json!(""), detail));
            None
        }
        (true, true) => {
            if is_required {
                errors.push(Error::required(path.clone(), "claim or expression is required"));
            }
            None
        }
        (true, false) => {
            if let Some(prefix) = &wanted.prefix {
                let detail = "may not be specified when expression is set";
                errors.push(Error::invalid(path.child("prefix"), &json!(prefix), detail));
            }
            let compiled = compile_claims(&wanted.expression, false);
            taken(compiled, &wanted.expression, path.child("expression"), errors)
        }
        (false, true) => {
            if wanted.prefix.is_none() {
                let detail = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
                errors.push(Error::required(path.child("prefix"), detail));
            }
            None
        }
    }
}

fn user_rules(jwt: &JwtAuthenticator, path: &Path, mapping: &mut Mapping, errors: &mut Vec<Error>) {
    let mut expressions = HashSet::new();
    for (i, rule) in jwt.user_validation_rules.iter().enumerate() {
        let path = path.index(i).child("expression");
        if rule.expression.is_empty() {
            errors.push(Error::required(path, ""));
        } else if !expressions.insert(&rule.expression) {
            errors.push(Error::duplicate(path, &json!(rule.expression)));
        } else if let Some(compiled) =
            taken(compile_user(&rule.expression), &rule.expression, path, errors)
        {
            mapping.user_rules.push(Rule::new(&compiled, &rule.message));
        }
    }
}

/// The compiled expression, or an error of its field.
fn taken(
    compiled: Result<Checked, String>,
    expression: &str,
    path: Path,
    errors: &mut Vec<Error>,
) -> Option<Checked> {
    match compiled {
        Ok(compiled) => Some(compiled),
        Err(detail) => {
            errors.push(Error::invalid(path, &Value::from(expression), detail));
            None
        }
    }
}
