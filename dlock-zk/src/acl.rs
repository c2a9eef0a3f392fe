//! The access rights of the nodes that dlock creates.

use std::str::FromStr;

use dlock_core::Error;
use zookeeper_client::{Acl as Entry, Acls, AuthId, Permission};

use crate::error::value;

pub(crate) const CREATE: &str = "create (c)";
pub(crate) const READ: &str = "read (r)";
pub(crate) const WRITE: &str = "write (w)";
pub(crate) const DELETE: &str = "delete (d)";

/// The rights that dlock needs on its nodes.
const RIGHTS: [(Permission, &str); 4] = [
    (Permission::CREATE, CREATE),
    (Permission::READ, READ),
    (Permission::WRITE, WRITE),
    (Permission::DELETE, DELETE),
];

/// The access rights of new nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Acl {
    /// All rights for all clients.
    Open,
    /// All rights for clients with the credentials of the creator.
    Creator,
    /// The rights of these entries.
    Entries(Vec<Entry>),
}

impl Acl {
    /// Converts it to the driver's type.
    pub(crate) fn for_driver(&self) -> Acls<'_> {
        match self {
            Self::Open => Acls::anyone_all(),
            Self::Creator => Acls::creator_all(),
            Self::Entries(entries) => Acls::new(entries),
        }
    }

    /// Returns the first right that dlock needs and that no entry grants.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        let Self::Entries(entries) = self else { return None };
        let given = entries.iter().fold(Permission::NONE, |all, entry| all | entry.permission());
        RIGHTS.into_iter().find(|(right, _)| !given.has(*right)).map(|(_, name)| name)
    }
}

impl FromStr for Acl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "open" => Ok(Self::Open),
            "creator" => Ok(Self::Creator),
            _ => text.split(',').map(entry).collect::<Option<_>>().map(Self::Entries).ok_or_else(
                || {
                    value(
                        "dlock.acl can't be read: write open, creator, or scheme:id:rights \
                         separated by commas, with rights from rwcda, such as \
                         world:anyone:r,digest:user:hash:rwcda",
                    )
                },
            ),
        }
    }
}

/// Parses `scheme:id:rights`. An id may contain colons.
fn entry(text: &str) -> Option<Entry> {
    let (scheme, rest) = text.split_once(':')?;
    let (id, rights) = rest.rsplit_once(':')?;
    let right = |letter| match letter {
        'r' => Some(Permission::READ),
        'w' => Some(Permission::WRITE),
        'c' => Some(Permission::CREATE),
        'd' => Some(Permission::DELETE),
        'a' => Some(Permission::ADMIN),
        _ => None,
    };
    let all = rights.chars().map(right).collect::<Option<Vec<_>>>()?;
    if scheme.is_empty() || all.is_empty() {
        return None;
    }
    let rights = all.into_iter().fold(Permission::NONE, |all, one| all | one);
    Some(Entry::new(rights, AuthId::new(scheme, id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read() {
        let acl: Acl = "world:anyone:r,digest:user:ha:sh=:rwcda,auth::cd".parse().unwrap();
        let Acl::Entries(entries) = acl else { panic!("{acl:?}") };
        let seen: Vec<_> = entries.iter().map(|e| (e.scheme(), e.id(), e.permission())).collect();
        assert_eq!(seen[0], ("world", "anyone", Permission::READ));
        assert_eq!(seen[1], ("digest", "user:ha:sh=", Permission::ALL));
        assert_eq!(seen[2], ("auth", "", Permission::CREATE | Permission::DELETE));
    }

    #[test]
    fn a_right_that_no_entry_gives_is_missing() {
        for (text, missing) in [
            ("open", None),
            ("creator", None),
            ("world:anyone:crwd", None),
            ("world:anyone:r,digest:user:hash:cwd", None),
            ("world:anyone:rwda", Some(CREATE)),
            ("world:anyone:cwda,ip:10.0.0.1:cw", Some(READ)),
            ("world:anyone:crda", Some(WRITE)),
            ("world:anyone:crwa", Some(DELETE)),
        ] {
            let acl: Acl = text.parse().unwrap();
            assert_eq!(acl.missing(), missing, "{text}");
        }
    }
}
