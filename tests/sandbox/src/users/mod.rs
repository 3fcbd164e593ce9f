//! Users, roles and what they may do.

mod grants;

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::RwLock;
use sha1::{Digest, Sha1};

pub(crate) use self::grants::{Grants, Scope};
use crate::error::SqlError;
use crate::native_password;

/// What a user may be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Privilege {
    /// Manage nodes.
    Node,
    /// Everything but nodes.
    Admin,
    /// Pass privileges on.
    Grant,
    /// Read.
    Select,
    /// Write.
    Load,
    /// Change tables.
    Alter,
    /// Create databases, tables and views.
    Create,
    /// Drop them.
    Drop,
    /// Use resources.
    Usage,
    /// See the text of views.
    ShowView,
}

impl Privilege {
    /// All of them, as `GRANT ALL` means them.
    pub(crate) const GRANTABLE: [Self; 7] =
        [Self::Select, Self::Load, Self::Alter, Self::Create, Self::Drop, Self::Usage, Self::ShowView];

    /// Name in GRANT and in SHOW GRANTS.
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "Node_priv",
            Self::Admin => "Admin_priv",
            Self::Grant => "Grant_priv",
            Self::Select => "Select_priv",
            Self::Load => "Load_priv",
            Self::Alter => "Alter_priv",
            Self::Create => "Create_priv",
            Self::Drop => "Drop_priv",
            Self::Usage => "Usage_priv",
            Self::ShowView => "Show_view_priv",
        }
    }

    /// Name in a refusal.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Node => "NODE",
            Self::Admin => "ADMIN",
            Self::Grant => "GRANT",
            Self::Select => "SELECT",
            Self::Load => "LOAD",
            Self::Alter => "ALTER",
            Self::Create => "CREATE",
            Self::Drop => "DROP",
            Self::Usage => "USAGE",
            Self::ShowView => "SHOW VIEW",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let all = [Self::Node, Self::Admin, Self::Grant].into_iter().chain(Self::GRANTABLE);
        all.into_iter().find(|p| p.name().eq_ignore_ascii_case(text))
    }
}

/// `user@host`
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) name: String,
    /// Address, or a pattern with `%` and `_`.
    pub(crate) host: String,
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "'{}'@'{}'", self.name, self.host)
    }
}

/// A password as it is kept: `SHA1(SHA1(password))`; `None` is no password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Password(Option<[u8; 20]>);

impl Password {
    pub(crate) fn of(plain: &str) -> Self {
        Self((!plain.is_empty()).then(|| Sha1::digest(Sha1::digest(plain.as_bytes())).into()))
    }

    /// `*` and 40 hexadecimal digits.
    pub(crate) fn of_hash(text: &str) -> Result<Self, SqlError> {
        let refused = || SqlError::coded(1372, "Password hash should be a 41-digit hexadecimal number");
        let digits = text.strip_prefix('*').filter(|d| d.len() == 40 && d.is_ascii()).ok_or_else(refused)?;
        let mut hash = [0; 20];
        for (i, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).map_err(|_| refused())?;
        }
        Ok(Self(Some(hash)))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.is_some()
    }

    fn is(&self, plain: &str) -> bool {
        *self == Self::of(plain)
    }

    fn answers(&self, salt: &[u8], auth: &[u8]) -> bool {
        match &self.0 {
            None => auth.is_empty(),
            Some(hash) => native_password::verify(hash, salt, auth),
        }
    }
}

/// One account.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) password: Password,
    pub(crate) comment: String,
    pub(crate) roles: BTreeSet<String>,
    pub(crate) grants: Grants,
    pub(crate) max_connections: Option<usize>,
}

#[derive(Default)]
struct Accounts {
    users: BTreeMap<Identity, User>,
    roles: BTreeMap<String, Grants>,
}

/// All accounts of a cluster.
pub(crate) struct Users {
    administrator: String,
    accounts: RwLock<Accounts>,
}

/// Whether a host pattern covers an address; several loopback names are one.
fn covers(pattern: &str, address: &str) -> bool {
    let local = |host: &str| matches!(host, "127.0.0.1" | "::1" | "localhost");
    pattern == "%" || crate::sql::like(address, pattern) || (local(pattern) && local(address))
}

impl Users {
    pub(crate) fn new(administrator: &str, password: &str) -> Self {
        let users = Self { administrator: administrator.to_owned(), accounts: RwLock::default() };
        users.set(administrator, password);
        users
    }

    /// Adds a user from any host, or replaces the password of one.
    pub(crate) fn set(&self, name: &str, password: &str) {
        let mut accounts = self.accounts.write();
        let identity = Identity { name: name.to_owned(), host: "%".to_owned() };
        let user = accounts.users.entry(identity).or_insert_with(|| new_user(Password(None), ""));
        user.password = Password::of(password);
        if name == self.administrator {
            user.grants.add(Scope::Global, [Privilege::Node, Privilege::Admin]);
        }
    }

    fn matching(&self, name: &str, address: Option<&str>, test: impl Fn(&Password) -> bool) -> bool {
        let accounts = self.accounts.read();
        let mut known = accounts.users.iter().filter(|(id, _)| id.name == name);
        known.any(|(id, user)| address.is_none_or(|a| covers(&id.host, a)) && test(&user.password))
    }

    /// Whether the password is right; `address` is checked when it is known.
    pub(crate) fn authenticate(&self, name: &str, address: Option<&str>, password: &str) -> bool {
        self.matching(name, address, |known| known.is(password))
    }

    /// Whether `auth` answers `salt` rightly.
    pub(crate) fn answers(&self, name: &str, address: Option<&str>, salt: &[u8], auth: &[u8]) -> bool {
        self.matching(name, address, |known| known.answers(salt, auth))
    }

    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.accounts.read().users.keys().any(|id| id.name == name)
    }

    /// Whether any account of this name, or a role of it, has the privilege there. Empty names mean a wider scope.
    pub(crate) fn allows(&self, name: &str, db: &str, table: &str, privilege: Privilege) -> bool {
        self.any_grants(name, |grants| grants.allows(db, table, privilege))
    }

    /// Whether the user has anything to do with a database or table.
    pub(crate) fn sees(&self, name: &str, db: &str, table: &str) -> bool {
        self.any_grants(name, |grants| grants.touches(db, table))
    }

    fn any_grants(&self, name: &str, test: impl Fn(&Grants) -> bool) -> bool {
        let accounts = self.accounts.read();
        let mut users = accounts.users.iter().filter(|(id, _)| id.name == name);
        users.any(|(_, user)| {
            test(&user.grants) || user.roles.iter().any(|role| accounts.roles.get(role).is_some_and(&test))
        })
    }

    /// `max_user_connections`, when it was set for the user.
    pub(crate) fn max_connections(&self, name: &str) -> Option<usize> {
        let accounts = self.accounts.read();
        accounts.users.iter().filter(|(id, _)| id.name == name).filter_map(|(_, user)| user.max_connections).max()
    }

    /// # Errors
    /// The account exists.
    pub(crate) fn create(
        &self,
        id: Identity,
        password: Password,
        comment: &str,
        role: Option<String>,
        keep: bool,
    ) -> Result<(), SqlError> {
        let mut accounts = self.accounts.write();
        if let Some(role) = &role {
            accounts.check_role(role)?;
        }
        if accounts.users.contains_key(&id) {
            return if keep { Ok(()) } else { Err(SqlError::detail(format!("User {id} already exist"))) };
        }
        let mut user = new_user(password, comment);
        user.roles.extend(role);
        accounts.users.insert(id, user);
        Ok(())
    }

    /// # Errors
    /// There is no such account, or it is the administrator's.
    pub(crate) fn drop(&self, id: &Identity, if_exists: bool) -> Result<(), SqlError> {
        if id.name == self.administrator {
            return Err(SqlError::detail(format!("Can not drop user {}", id.name)));
        }
        match self.accounts.write().users.remove(id) {
            Some(_) => Ok(()),
            None if if_exists => Ok(()),
            None => Err(SqlError::detail(format!("User {id} does not exist"))),
        }
    }

    /// Changes an account.
    ///
    /// # Errors
    /// There is no such account.
    pub(crate) fn alter<T>(&self, id: &Identity, change: impl FnOnce(&mut User) -> T) -> Result<T, SqlError> {
        match self.accounts.write().users.get_mut(id) {
            Some(user) => Ok(change(user)),
            None => Err(SqlError::detail(format!("User {id} does not exist"))),
        }
    }

    /// # Errors
    /// The role exists.
    pub(crate) fn create_role(&self, name: &str, keep: bool) -> Result<(), SqlError> {
        let mut accounts = self.accounts.write();
        if accounts.roles.contains_key(name) {
            return if keep { Ok(()) } else { Err(SqlError::detail(format!("Role {name} already exist"))) };
        }
        accounts.roles.insert(name.to_owned(), Grants::default());
        Ok(())
    }

    /// # Errors
    /// There is no such role.
    pub(crate) fn drop_role(&self, name: &str, if_exists: bool) -> Result<(), SqlError> {
        let mut accounts = self.accounts.write();
        if accounts.roles.remove(name).is_none() && !if_exists {
            return Err(SqlError::detail(format!("Role {name} does not exist")));
        }
        accounts.users.values_mut().for_each(|user| {
            user.roles.remove(name);
        });
        Ok(())
    }

    /// Changes the privileges of a role.
    ///
    /// # Errors
    /// There is no such role.
    pub(crate) fn alter_role<T>(&self, name: &str, change: impl FnOnce(&mut Grants) -> T) -> Result<T, SqlError> {
        let mut accounts = self.accounts.write();
        accounts.check_role(name)?;
        Ok(change(accounts.roles.entry(name.to_owned()).or_default()))
    }

    /// # Errors
    /// There is no such role.
    pub(crate) fn check_role(&self, name: &str) -> Result<(), SqlError> {
        self.accounts.read().check_role(name)
    }

    /// Accounts with the privileges of their roles folded in.
    pub(crate) fn list(&self) -> Vec<(Identity, User)> {
        let accounts = self.accounts.read();
        let folded = |(id, user): (&Identity, &User)| {
            let mut user = user.clone();
            for role in &user.roles {
                if let Some(grants) = accounts.roles.get(role) {
                    user.grants.extend(grants);
                }
            }
            (id.clone(), user)
        };
        accounts.users.iter().map(folded).collect()
    }

    /// Roles with their users.
    pub(crate) fn roles(&self) -> Vec<(String, Grants, Vec<Identity>)> {
        let accounts = self.accounts.read();
        let users = |role: &str| {
            accounts.users.iter().filter(|(_, user)| user.roles.contains(role)).map(|(id, _)| id.clone()).collect()
        };
        accounts.roles.iter().map(|(name, grants)| (name.clone(), grants.clone(), users(name))).collect()
    }
}

impl Accounts {
    fn check_role(&self, name: &str) -> Result<(), SqlError> {
        match self.roles.contains_key(name) {
            true => Ok(()),
            false => Err(SqlError::detail(format!("Role {name} does not exist"))),
        }
    }
}

fn new_user(password: Password, comment: &str) -> User {
    User {
        password,
        comment: comment.to_owned(),
        roles: BTreeSet::new(),
        grants: Grants::default(),
        max_connections: None,
    }
}

/// 1227 for an operation.
pub(crate) fn denied(privileges: &str) -> SqlError {
    SqlError::coded(
        1227,
        format!("Access denied; you need (at least one of) the ({privileges}) privilege(s) for this operation"),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_addresses_or_patterns() {
        for (pattern, address, yes) in [
            ("%", "10.0.0.1", true),
            ("10.0.%", "10.0.3.4", true),
            ("10.0.%", "10.1.3.4", false),
            ("localhost", "127.0.0.1", true),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
        ] {
            assert_eq!(covers(pattern, address), yes, "{pattern} {address}");
        }
    }

    #[test]
    fn a_password_hash_is_what_password_prints() {
        let hash = Password::of_hash("*94BDCEBE19083CE2A1F959FD02F964C7AF4CFC29").expect("hash");
        assert!(hash.is("test") && !hash.is("text") && !hash.is(""));
        assert!(Password::of_hash("94BD").is_err() && Password::of_hash("*zz").is_err());
        assert!(Password::of("").is("") && !Password::of("").is_set());
    }
}
