//! Privileges by the part of the cluster they hold for.

use std::collections::{BTreeMap, BTreeSet};

use super::Privilege;

/// What a grant covers, in catalog `internal`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// `*.*.*`
    Global,
    /// `internal.*.*`
    Catalog,
    /// `internal.db.*`
    Database(String),
    /// `internal.db.table`
    Table(String, String),
}

impl Scope {
    /// Whether the scope holds a place; an empty name is the whole level.
    fn holds(&self, db: &str, table: &str) -> bool {
        match self {
            Self::Global => true,
            // What concerns the cluster and no database is global only.
            Self::Catalog => !db.is_empty(),
            Self::Database(name) => name == db,
            Self::Table(in_db, name) => in_db == db && name == table,
        }
    }
}

/// Privileges of a user or role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Grants(BTreeMap<Scope, BTreeSet<Privilege>>);

impl Grants {
    pub(crate) fn add(&mut self, scope: Scope, privileges: impl IntoIterator<Item = Privilege>) {
        self.0.entry(scope).or_default().extend(privileges);
    }

    /// Takes privileges away; false when the scope had none of them.
    pub(crate) fn remove(&mut self, scope: &Scope, privileges: &[Privilege]) -> bool {
        let Some(held) = self.0.get_mut(scope) else { return false };
        let before = held.len();
        held.retain(|p| !privileges.contains(p));
        let removed = held.len() < before;
        if held.is_empty() {
            self.0.remove(scope);
        }
        removed
    }

    /// Every privilege with its scope.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Scope, Privilege)> {
        self.0.iter().flat_map(|(scope, held)| held.iter().map(move |privilege| (scope, *privilege)))
    }

    pub(crate) fn extend(&mut self, other: &Self) {
        for (scope, privileges) in &other.0 {
            self.add(scope.clone(), privileges.iter().copied());
        }
    }

    pub(crate) fn allows(&self, db: &str, table: &str, privilege: Privilege) -> bool {
        self.0.iter().any(|(scope, held)| {
            let by_admin = *scope == Scope::Global && privilege != Privilege::Node && held.contains(&Privilege::Admin);
            by_admin || (held.contains(&privilege) && scope.holds(db, table))
        })
    }

    /// Any privilege on the place or on something inside it.
    pub(crate) fn touches(&self, db: &str, table: &str) -> bool {
        self.0.iter().any(|(scope, held)| {
            let inside = match scope {
                Scope::Database(name) | Scope::Table(name, _) if table.is_empty() => name == db,
                _ => false,
            };
            // Managing nodes shows no data.
            let counts = held.iter().any(|p| *p != Privilege::Node);
            counts && (inside || scope.holds(db, table))
        })
    }

    fn texts(&self, wanted: impl Fn(&Scope) -> Option<String>) -> Option<String> {
        let parts: Vec<String> = self
            .0
            .iter()
            .filter_map(|(scope, held)| {
                let names: Vec<&str> = held.iter().map(|p| p.name()).collect();
                wanted(scope).map(|name| format!("{name}{}", names.join(",")))
            })
            .collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// The cells GlobalPrivs, CatalogPrivs, DatabasePrivs and TablePrivs of SHOW GRANTS.
    pub(crate) fn cells(&self) -> [Option<String>; 4] {
        let databases = self.texts(|scope| match scope {
            Scope::Database(db) => Some(format!("internal.{db}: ")),
            _ => None,
        });
        let system = "internal.information_schema: Select_priv; internal.mysql: Select_priv";
        [
            self.texts(|scope| (*scope == Scope::Global).then(String::new)),
            self.texts(|scope| (*scope == Scope::Catalog).then(|| "internal: ".to_owned())),
            Some(databases.map_or_else(|| system.to_owned(), |own| format!("{own}; {system}"))),
            self.texts(|scope| match scope {
                Scope::Table(db, table) => Some(format!("internal.{db}.{table}: ")),
                _ => None,
            }),
        ]
    }
}
