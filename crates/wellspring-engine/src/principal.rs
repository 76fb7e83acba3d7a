//! Principals, and their permissions.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The tenant of runs that were started without naming one.
pub const DEFAULT_TENANT: &str = "default";

/// The id of [`Principal::local`]: the user of this machine, in the terminal, an editor or a
/// program that embeds the library.
pub const LOCAL: &str = "local";

/// A caller that acts on runs. A surface makes one per request, from its own authentication;
/// [`Control`](crate::Control) decides what it may do. Cheap to clone.
///
/// ```
/// use wellspring_engine::{Permission, Principal};
///
/// let ci = Principal::new("acme", "ci", [Permission::Run, Permission::Read]);
/// assert!(ci.may(Permission::Run) && !ci.may(Permission::Approve));
/// assert!(Principal::local().may(Permission::Admin));
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Principal {
    /// The tenant whose runs it sees. Another tenant's run is reported as not found.
    pub tenant: Arc<str>,
    /// Its name, unique among all tenants. Runs record it as their asker, and the audit log as the
    /// actor.
    pub id: Arc<str>,
    /// Its permissions.
    pub permissions: Permissions,
    is_local: bool,
}

impl Principal {
    /// A principal of a tenant.
    #[must_use]
    pub fn new(
        tenant: impl Into<Arc<str>>,
        id: impl Into<Arc<str>>,
        permissions: impl IntoIterator<Item = Permission>,
    ) -> Self {
        let permissions = permissions.into_iter().collect();
        Self { tenant: tenant.into(), id: id.into(), permissions, is_local: false }
    }

    /// The user of this machine: all permissions in [`DEFAULT_TENANT`], and no limits per
    /// principal.
    #[must_use]
    pub fn local() -> Self {
        Self { is_local: true, ..Self::new(DEFAULT_TENANT, LOCAL, [Permission::Admin]) }
    }

    /// The same principal under another name.
    #[must_use]
    pub fn named(self, id: impl Into<Arc<str>>) -> Self {
        Self { id: id.into(), ..self }
    }

    /// The same principal in another tenant.
    #[must_use]
    pub fn in_tenant(self, tenant: impl Into<Arc<str>>) -> Self {
        Self { tenant: tenant.into(), ..self }
    }

    /// Whether it is [`Principal::local`], possibly under another name or in another tenant.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        self.is_local
    }

    /// Whether it has a permission. [`Permission::Admin`] includes all others.
    #[must_use]
    pub const fn may(&self, permission: Permission) -> bool {
        self.permissions.include(permission)
    }
}

/// A permission of a principal.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// Read runs, threads and their events.
    Read,
    /// Start, steer and cancel runs.
    Run,
    /// Answer questions, approvals among them.
    Approve,
    /// Everything, including deleting runs and reading the audit log and the metrics.
    Admin,
}

impl Permission {
    /// All permissions.
    pub const ALL: [Self; 4] = [Self::Read, Self::Run, Self::Approve, Self::Admin];

    /// The name used in configuration and tokens.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Run => "run",
            Self::Approve => "approve",
            Self::Admin => "admin",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Read => 1,
            Self::Run => 2,
            Self::Approve => 4,
            Self::Admin => 8,
        }
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text does not name a permission.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0:?} is not a permission; use read, run, approve or admin")]
pub struct UnknownPermission(String);

impl FromStr for Permission {
    type Err = UnknownPermission;

    fn from_str(name: &str) -> Result<Self, UnknownPermission> {
        let known = Self::ALL.into_iter().find(|permission| permission.as_str() == name);
        known.ok_or_else(|| UnknownPermission(name.chars().take(32).collect()))
    }
}

/// A set of permissions.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Permissions(u8);

impl Permissions {
    /// Whether a permission is in the set, or [`Permission::Admin`] is.
    #[must_use]
    pub const fn include(self, permission: Permission) -> bool {
        self.0 & (permission.bit() | Permission::Admin.bit()) != 0
    }
}

impl FromIterator<Permission> for Permissions {
    fn from_iter<I: IntoIterator<Item = Permission>>(permissions: I) -> Self {
        Self(permissions.into_iter().fold(0, |all, permission| all | permission.bit()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_admin_includes_others() {
        for has in Permission::ALL {
            let who = Principal::new("one", "a", [has]);
            for wanted in Permission::ALL {
                let expected = has == wanted || has == Permission::Admin;
                assert_eq!(who.may(wanted), expected, "{has} for {wanted}");
            }
            assert_eq!(has.as_str().parse(), Ok(has));
        }
        assert!(Permission::ALL.into_iter().all(|it| Principal::local().may(it)));
        assert!(!Principal::new("default", "local", Permission::ALL).is_local());
        assert!("root".parse::<Permission>().is_err());
    }
}
