//! Names of users and groups that Kubernetes reserves (spec: auth §1.1).

/// The group whose members may do everything.
pub const MASTERS: &str = "system:masters";
/// The group of monitors: they read health and metrics, and have their requests traced.
pub const MONITORING: &str = "system:monitoring";
/// The group of all users with valid credentials.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of clients without credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// A client without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of the agents of nodes.
pub const NODES: &str = "system:nodes";
/// The group of all service accounts.
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// The extra value of a user that identifies the credential: a token by its id, a certificate by
/// its digest.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
/// The extra value with the node that the token of a service account is bound to.
pub const BOUND_NODE: &str = "authentication.kubernetes.io/node-name";

/// The prefix of the user names of agents of nodes.
const NODE_PREFIX: &str = "system:node:";
/// The prefix of the user names of service accounts.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// The user name of a service account.
///
/// ```
/// assert_eq!(setpoint_object::users::service_account("shop", "bot"), "system:serviceaccount:shop:bot");
/// ```
pub fn service_account(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}

/// The namespace and the name of the service account that a user name means. Neither is checked.
pub fn service_account_of(user: &str) -> Option<(&str, &str)> {
    user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')
}

/// The groups of a service account of a namespace, besides [`AUTHENTICATED`].
pub fn service_account_groups(namespace: &str) -> [String; 2] {
    [SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")]
}

/// The node whose agent a user name means. May be empty; it is not checked.
pub fn node_of(user: &str) -> Option<&str> {
    user.strip_prefix(NODE_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_service_accounts_are_read_as_they_are_written() {
        let user = service_account("shop", "bot");
        assert_eq!(service_account_of(&user), Some(("shop", "bot")));
        assert_eq!(service_account_groups("shop")[1], "system:serviceaccounts:shop");
        for other in ["bob", "system:serviceaccount:shop", "system:serviceaccounts:shop:bot"] {
            assert_eq!(service_account_of(other), None, "{other}");
        }
    }

    #[test]
    fn names_of_agents_have_the_node() {
        assert_eq!(node_of("system:node:n1"), Some("n1"));
        assert_eq!(node_of("system:node:"), Some(""));
        assert_eq!(node_of("system:nodes"), None);
    }
}
