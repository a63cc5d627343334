//! The options about tokens of OpenID Connect issuers, named as kube-apiserver's.

use crate::egress::Egress;
use anyhow::{Context as _, bail};
use clap::Args;
use setpoint::apiserver::Anonymous;
use setpoint::object::time::Clock;
use setpoint::oidc::{
    Algorithm, AuthenticationConfig, ClaimMappings, ClaimValidationRule, FILE_BYTES_MAX, Issuer,
    JwtAuthenticator, Oidc, OidcOptions, PrefixedClaimOrExpression,
};
use setpoint::{ConfigMetrics, ControlPlaneBuilder, IssuerMetrics};
use std::path::PathBuf;

/// Options of the issuers whose tokens are accepted.
#[derive(Debug, Args)]
pub(crate) struct IssuerOptions {
    /// A file of kind AuthenticationConfiguration with issuers of tokens, and whether requests
    /// without credentials are anonymous. It is reloaded while the server runs. Excludes the
    /// `--oidc-*` options.
    #[arg(long, value_name = "FILE")]
    authentication_config: Option<PathBuf>,
    /// The URL of an OpenID Connect issuer whose tokens are accepted.
    #[arg(long, value_name = "URL")]
    oidc_issuer_url: Option<String>,
    /// The audience that its tokens must have.
    #[arg(long, value_name = "ID")]
    oidc_client_id: Option<String>,
    /// The CA (PEM) of its server. Default: those of the system.
    #[arg(long, value_name = "FILE")]
    oidc_ca_file: Option<PathBuf>,
    /// The claim that is the user's name. Default: `sub`.
    #[arg(long, value_name = "CLAIM")]
    oidc_username_claim: Option<String>,
    /// What is put before it; `-`: nothing. Default: the issuer's URL and `#`, or nothing for the
    /// claim `email`.
    #[arg(long, value_name = "PREFIX")]
    oidc_username_prefix: Option<String>,
    /// The claim with the user's groups.
    #[arg(long, value_name = "CLAIM")]
    oidc_groups_claim: Option<String>,
    /// What is put before each of them.
    #[arg(long, value_name = "PREFIX")]
    oidc_groups_prefix: Option<String>,
    /// The accepted algorithms of its tokens, separated by commas. Default: RS256.
    #[arg(long, value_name = "ALGORITHMS", value_delimiter = ',')]
    oidc_signing_algs: Vec<String>,
    /// A claim that its tokens must have. May be given several times.
    #[arg(long, value_name = "CLAIM=VALUE")]
    oidc_required_claim: Vec<String>,
}

impl IssuerOptions {
    fn has_flags(&self) -> bool {
        let texts = [
            &self.oidc_issuer_url,
            &self.oidc_client_id,
            &self.oidc_username_claim,
            &self.oidc_username_prefix,
            &self.oidc_groups_claim,
            &self.oidc_groups_prefix,
        ];
        texts.into_iter().any(Option::is_some)
            || self.oidc_ca_file.is_some()
            || !self.oidc_signing_algs.is_empty()
            || !self.oidc_required_claim.is_empty()
    }

    /// Adds the issuers. Returns the file's setting for anonymous requests. `observer`: registers
    /// the metrics of issuers, `metrics` those of the file. `egress`: how issuers are reached.
    pub(crate) fn apply(
        &self,
        plane: ControlPlaneBuilder,
        clock: &Clock,
        own_issuers: Vec<String>,
        egress: &Egress,
        observer: impl FnOnce() -> IssuerMetrics,
        metrics: impl FnOnce() -> ConfigMetrics,
    ) -> anyhow::Result<(ControlPlaneBuilder, Option<Anonymous>)> {
        let mut options = OidcOptions::new(clock.clone()).disallowed_issuers(own_issuers.clone());
        if egress.has_issuers {
            options = options.egress(egress.selector.clone());
        }
        if let Some(path) = &self.authentication_config {
            if self.has_flags() {
                bail!("authentication-config file and oidc-* flags are mutually exclusive");
            }
            let loaded = AuthenticationConfig::load(path, &own_issuers);
            let (config, hash) = loaded.with_context(|| {
                format!(
                    "failed to load authentication configuration from file {:?}",
                    path.display().to_string()
                )
            })?;
            let metrics = metrics();
            metrics.loaded(&hash);
            let options = options
                .observer(observer())
                .reload(path)
                .report(move |report| metrics.reloaded(report.result.as_ref().ok()));
            let issuers = Oidc::new(&config, options).context("use --authentication-config")?;
            return Ok((plane.issuers(issuers), config.anonymous.map(anonymous)));
        }
        if !self.has_flags() {
            return Ok((plane, None));
        }
        let (Some(url), Some(client)) = (&self.oidc_issuer_url, &self.oidc_client_id) else {
            bail!(
                "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"
            );
        };
        let jwt = self.authenticator(url, client)?;
        let config = AuthenticationConfig { jwt: vec![jwt], anonymous: None };
        let options = options.algorithms(self.algorithms()?).observer(observer());
        let issuers =
            Oidc::new(&config, options).context("invalid authentication configuration")?;
        Ok((plane.issuers(issuers), None))
    }

    fn algorithms(&self) -> anyhow::Result<Vec<Algorithm>> {
        if self.oidc_signing_algs.is_empty() {
            return Ok(vec![Algorithm::Rs256]);
        }
        let parse = |name: &String| {
            Algorithm::parse(name)
                .with_context(|| format!("oidc: unsupported signing alg: {name:?}"))
        };
        self.oidc_signing_algs.iter().map(parse).collect()
    }

    fn authenticator(&self, url: &str, client: &str) -> anyhow::Result<JwtAuthenticator> {
        let claim = self.oidc_username_claim.as_deref().unwrap_or("sub");
        let prefix = match self.oidc_username_prefix.as_deref().unwrap_or_default() {
            "-" => String::new(),
            "" if claim != "email" => format!("{url}#"),
            prefix => prefix.to_owned(),
        };
        let username = PrefixedClaimOrExpression {
            claim: claim.to_owned(),
            prefix: Some(prefix),
            ..PrefixedClaimOrExpression::default()
        };
        let groups = match &self.oidc_groups_claim {
            None => PrefixedClaimOrExpression::default(),
            Some(claim) => PrefixedClaimOrExpression {
                claim: claim.clone(),
                prefix: Some(self.oidc_groups_prefix.clone().unwrap_or_default()),
                ..PrefixedClaimOrExpression::default()
            },
        };
        let certificate_authority = match &self.oidc_ca_file {
            None => String::new(),
            Some(path) => setpoint_small_file::read_text(path, FILE_BYTES_MAX)
                .context("use --oidc-ca-file")?,
        };
        let mut claim_validation_rules = Vec::new();
        for required in &self.oidc_required_claim {
            let Some((claim, value)) = required.split_once('=') else {
                bail!("--oidc-required-claim {required:?}: malformed pair, expect string=string");
            };
            claim_validation_rules.push(ClaimValidationRule {
                claim: claim.to_owned(),
                required_value: value.to_owned(),
                ..ClaimValidationRule::default()
            });
        }
        Ok(JwtAuthenticator {
            issuer: Issuer {
                url: url.to_owned(),
                audiences: vec![client.to_owned()],
                certificate_authority,
                ..Issuer::default()
            },
            claim_validation_rules,
            claim_mappings: ClaimMappings { username, groups, ..ClaimMappings::default() },
            ..JwtAuthenticator::default()
        })
    }
}

fn anonymous(config: setpoint::oidc::Anonymous) -> Anonymous {
    match (config.enabled, config.conditions.is_empty()) {
        (false, _) => Anonymous::Nowhere,
        (true, true) => Anonymous::Everywhere,
        (true, false) => {
            Anonymous::Paths(config.conditions.into_iter().map(|one| one.path).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use setpoint::ControlPlane;
    use setpoint::runtime::metrics::Metrics;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        issuers: IssuerOptions,
    }

    fn applied(arguments: &[&str]) -> Result<Option<Anonymous>, String> {
        let arguments = ["setpoint"].iter().chain(arguments);
        let program = Program::try_parse_from(arguments).map_err(|error| error.to_string())?;
        let (clock, metrics) = (Clock::wall(), Metrics::new());
        let counted = || ConfigMetrics::register(&metrics, "authentication", clock.clone(), "");
        let observer = || IssuerMetrics::register(&metrics, clock.clone(), "");
        let (plane, own) = (ControlPlane::builder(), vec!["https://own".into()]);
        let applied =
            program.issuers.apply(plane, &clock, own, &Egress::default(), observer, counted);
        applied.map(|(_, anonymous)| anonymous).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn flags_and_the_file_exclude_each_other() {
        assert_eq!(applied(&[]), Ok(None));
        let url = ["--oidc-issuer-url", "https://a", "--oidc-client-id", "b"];
        let with = |more: &[&str]| applied(&[&url, more].concat()).map(|_| ());
        assert_eq!(with(&["--oidc-required-claim", "hd=x", "--oidc-groups-claim", "g"]), Ok(()));
        assert_eq!(
            applied(&url[..2]).unwrap_err(),
            "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"
        );
        assert_eq!(
            with(&["--authentication-config", "f"]).unwrap_err(),
            "authentication-config file and oidc-* flags are mutually exclusive"
        );
        assert_eq!(
            with(&["--oidc-signing-algs", "RS256,HS256"]).unwrap_err(),
            r#"oidc: unsupported signing alg: "HS256""#
        );
        assert_eq!(
            applied(&["--oidc-issuer-url", "https://own", "--oidc-client-id", "b"]).unwrap_err(),
            r#"invalid authentication configuration: jwt[0].issuer.url: Invalid value: "https://own": URL must not overlap with disallowed issuers: [https://own]"#
        );
    }

    #[test]
    fn the_file_says_who_is_anonymous() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let arguments = ["--authentication-config", path.to_str().unwrap()];
        let start = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
        for (text, expected) in [
            ("", None),
            ("anonymous: {enabled: false}", Some(Anonymous::Nowhere)),
            ("anonymous: {enabled: true}", Some(Anonymous::Everywhere)),
            (
                "anonymous: {enabled: true, conditions: [{path: /livez}]}",
                Some(Anonymous::Paths(vec!["/livez".to_owned()])),
            ),
        ] {
            std::fs::write(&path, format!("{start}{text}")).unwrap();
            assert_eq!(applied(&arguments), Ok(expected));
        }
        std::fs::write(&path, format!("{start}jwt: [{{}}]")).unwrap();
        let error = applied(&arguments).unwrap_err();
        assert!(error.starts_with("failed to load authentication configuration from file"));
        assert!(error.contains("jwt[0].issuer.url: Required value"), "{error}");
    }
}
