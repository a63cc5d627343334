//! Tokens of a pod's service account. They are kept until it is time to renew them, as by a
//! kubelet.

use k8s_openapi::api::authentication::v1::TokenRequestStatus;
use parking_lot::Mutex;
use setpoint_object::error::chain;
use setpoint_object::time::Timestamp;
use setpoint_runtime::BoxError;
use std::collections::BTreeMap;
use std::time::Duration;
use twox_hash::XxHash3_64;

/// The age at which every token is renewed: 24 h, as a kubelet's. Others are renewed once 80 % of
/// their lifetime have passed.
const AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Each pod renews its tokens earlier by a part of this, so that many do not do it at once.
const JITTER_MAX: Duration = Duration::from_secs(10);

/// What a token is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Purpose {
    pub(crate) account: String,
    /// `None`: the API server.
    pub(crate) audience: Option<String>,
    pub(crate) seconds: i64,
}

/// The tokens of one pod.
#[derive(Debug)]
pub(crate) struct Tokens {
    jitter: Duration,
    kept: Mutex<BTreeMap<Purpose, Token>>,
}

#[derive(Debug, Clone)]
struct Token {
    text: String,
    since: Timestamp,
    /// When it expires.
    until: Timestamp,
}

impl Token {
    fn is_due(&self, now: Timestamp, jitter: Duration) -> bool {
        let left = self.until.since(now);
        let is_late = left <= self.until.since(self.since) / 5 + jitter;
        is_late || now.since(self.since) + jitter >= AGE_MAX
    }
}

impl Tokens {
    /// Those of the pod with this uid; none at first.
    pub(crate) fn of_pod(uid: &str) -> Self {
        let part = XxHash3_64::oneshot(uid.as_bytes()) % JITTER_MAX.as_millis() as u64;
        Self { jitter: Duration::from_millis(part), kept: Mutex::default() }
    }

    /// The token for a purpose. The request for a new one is only made if it is needed.
    ///
    /// # Errors
    ///
    /// The request fails, and the token that is kept has expired.
    pub(crate) async fn get(
        &self,
        purpose: Purpose,
        now: Timestamp,
        request: impl Future<Output = Result<TokenRequestStatus, BoxError>>,
    ) -> Result<String, BoxError> {
        let kept = self.kept.lock().get(&purpose).cloned();
        if let Some(kept) = &kept
            && !kept.is_due(now, self.jitter)
        {
            return Ok(kept.text.clone());
        }
        match (request.await, kept) {
            (Ok(answer), _) => {
                let text = answer.token.ok_or("the token is missing")?;
                let until = answer.expiration_timestamp.map(|time| time.0.to_string());
                let until = until.and_then(|time| Timestamp::parse(&time)).unwrap_or(now);
                let new = Token { text: text.clone(), since: now, until };
                self.kept.lock().insert(purpose, new);
                Ok(text)
            }
            // The next refresh of the volumes tries again.
            (Err(error), Some(kept)) if now < kept.until => {
                let account = &*purpose.account;
                tracing::warn!(error = chain(&*error), account, "renew a token of a pod");
                Ok(kept.text)
            }
            (Err(error), _) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const HOUR: u64 = 60 * 60;

    fn purpose(audience: Option<&str>, seconds: u64) -> Purpose {
        Purpose {
            account: "default".to_owned(),
            audience: audience.map(str::to_owned),
            seconds: seconds.try_into().unwrap(),
        }
    }

    /// The token at this second. A new one has the second as its text.
    async fn at(tokens: &Tokens, second: u64, purpose: &Purpose) -> String {
        let now = Timestamp::from_secs(second);
        let until = Timestamp::from_secs(second + u64::try_from(purpose.seconds).unwrap());
        let answer = json!({"token": second.to_string(), "expirationTimestamp": until.rfc3339()});
        let request = async { Ok(serde_json::from_value(answer)?) };
        tokens.get(purpose.clone(), now, request).await.unwrap()
    }

    #[tokio::test]
    async fn a_token_is_renewed_when_most_of_its_lifetime_has_passed() {
        let (tokens, hour) = (Tokens::of_pod("u"), purpose(None, HOUR));
        for (second, token) in
            [(0, "0"), (30, "0"), (HOUR * 4 / 5 - 11, "0"), (HOUR * 4 / 5, "2880"), (3000, "2880")]
        {
            assert_eq!(at(&tokens, second, &hour).await, token, "{second}");
        }
        let (tokens, year) = (Tokens::of_pod("u"), purpose(None, 365 * 24 * HOUR));
        for (second, token) in [(0, "0"), (24 * HOUR - 11, "0"), (24 * HOUR, "86400")] {
            assert_eq!(at(&tokens, second, &year).await, token, "{second}");
        }
    }

    #[tokio::test]
    async fn tokens_for_several_purposes_are_apart() {
        let tokens = Tokens::of_pod("u");
        let all = [purpose(None, HOUR), purpose(Some("a"), HOUR), purpose(None, 2 * HOUR)];
        for (second, purpose) in (0..).zip(&all) {
            assert_eq!(at(&tokens, second, purpose).await, second.to_string());
        }
        for (second, purpose) in (0_u64..).zip(&all) {
            assert_eq!(at(&tokens, 60, purpose).await, second.to_string());
        }
    }

    #[tokio::test]
    async fn a_token_that_cannot_be_renewed_is_kept_until_it_expires() {
        let (tokens, hour) = (Tokens::of_pod("u"), purpose(None, HOUR));
        at(&tokens, 0, &hour).await;
        let fail = async |second: u64| {
            let now = Timestamp::from_secs(second);
            let found = tokens.get(hour.clone(), now, async { Err("later".into()) }).await;
            found.map_err(|error| error.to_string())
        };
        assert_eq!(fail(HOUR - 1).await, Ok("0".to_owned()));
        assert_eq!(fail(HOUR).await, Err("later".to_owned()));
        assert_eq!(at(&tokens, HOUR + 1, &hour).await, "3601");
    }
}
