//! The options about requests: how many, for how long, and what they may ask for. Named as
//! kube-apiserver's.

use crate::booleans::boolean;
use crate::durations::any_duration;
use anyhow::bail;
use clap::{ArgAction, Args};
use setpoint::ControlPlaneBuilder;
use setpoint::apiserver::RequestLimits;
use std::net::IpAddr;
use std::time::Duration;

/// Limits of requests.
#[derive(Debug, Args)]
pub(crate) struct RequestOptions {
    /// Whether FlowSchemas and PriorityLevelConfigurations decide which requests run and which
    /// wait. Otherwise reads and writes have limits of their own.
    #[arg(long, value_name = "BOOL", value_parser = boolean, action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = true)]
    enable_priority_and_fairness: bool,
    /// Maximum concurrent reads. With priority and fairness, the sum of both limits counts;
    /// without it, zero is no limit.
    #[arg(long, default_value_t = 400, value_name = "N")]
    max_requests_inflight: usize,
    /// Maximum concurrent writes.
    #[arg(long, default_value_t = 200, value_name = "N")]
    max_mutating_requests_inflight: usize,
    /// Maximum open watches of all users; further ones are refused with 429. An idle watch takes
    /// 1.4 KiB of memory. Neither this limit nor the next is for `system:masters`.
    #[arg(long, default_value_t = 200_000, value_name = "N")]
    max_watches: usize,
    /// Maximum open watches of one user.
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    max_watches_per_user: usize,
    /// Maximum time of a request that is not long-running; a smaller `?timeout=` counts.
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "1m")]
    request_timeout: Duration,
    /// Minimum duration of a watch that asks for none; a random part of up to the same length is
    /// added.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    min_request_timeout: u32,
    /// For how long after the start `/livez` does not wait for it.
    #[arg(long, value_name = "DURATION", value_parser = any_duration, default_value = "0s")]
    livez_grace_period: Duration,
    /// Whether containers may be privileged. Otherwise new ones are refused.
    #[arg(long, value_name = "BOOL", value_parser = boolean, action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = true)]
    pub(crate) allow_privileged: bool,
    /// Whether lists with `resourceVersion=0` are answered at once, with all objects in one page
    /// whatever their limit, as with kube-apiserver's watch cache. setpoint's own cache is always
    /// on.
    #[arg(long, value_name = "BOOL", value_parser = boolean, action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = true)]
    watch_cache: bool,
    /// The host at which clients reach the server, perhaps with a port: in discovery, and in the
    /// URL of the public keys of service account tokens. Default: the one that each client used.
    #[arg(long, value_name = "HOST[:PORT]")]
    external_hostname: Option<String>,
}

impl RequestOptions {
    /// `port` is that of the HTTPS listener; 0: not known yet.
    pub(crate) fn apply(
        self,
        mut plane: ControlPlaneBuilder,
        port: u16,
    ) -> anyhow::Result<ControlPlaneBuilder> {
        if let Some(host) = self.external_hostname.filter(|host| !host.is_empty()) {
            plane = plane.address(with_port(&host, port)?);
        }
        if self.enable_priority_and_fairness
            && self.max_requests_inflight == 0
            && self.max_mutating_requests_inflight == 0
        {
            bail!(
                "--max-requests-inflight and --max-mutating-requests-inflight must add up to something positive with priority and fairness"
            );
        }
        let limits = RequestLimits::default()
            .reads(self.max_requests_inflight)
            .writes(self.max_mutating_requests_inflight)
            .fair(self.enable_priority_and_fairness)
            .watches(self.max_watches)
            .watches_per_user(self.max_watches_per_user);
        Ok(plane
            .request_limits(limits)
            .request_timeout(self.request_timeout)
            .min_request_timeout(Duration::from_secs(self.min_request_timeout.into()))
            .livez_grace_period(self.livez_grace_period)
            .allow_privileged(self.allow_privileged)
            .watch_cache(self.watch_cache))
    }
}

/// A host with its port, or with this one.
fn with_port(host: &str, port: u16) -> anyhow::Result<String> {
    let is_address = |text: &str| text.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6());
    let has_port = match host.rsplit_once(':') {
        Some((_, port)) => !is_address(host) && port.bytes().all(|byte| byte.is_ascii_digit()),
        None => false,
    };
    Ok(match (has_port, port) {
        (true, _) => host.to_owned(),
        (false, 0) => bail!("give --external-hostname a port: --secure-port=0 picks one later"),
        (false, port) if is_address(host) => format!("[{host}]:{port}"),
        (false, port) => format!("{host}:{port}"),
    })
}

#[cfg(test)]
mod tests {
    use super::with_port;

    #[test]
    fn a_host_without_a_port_gets_that_of_the_listener() {
        let of = |host: &str, port| with_port(host, port).ok();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of("a.com", 6443), some("a.com:6443"));
        assert_eq!(of("a.com:8443", 0), some("a.com:8443"));
        assert_eq!(of("10.0.0.1", 1), some("10.0.0.1:1"));
        assert_eq!(of("fd00::1", 1), some("[fd00::1]:1"));
        assert_eq!(of("[fd00::1]:2", 1), some("[fd00::1]:2"));
        assert_eq!(of("a.com", 0), None);
    }
}
