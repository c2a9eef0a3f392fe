//! Who may do what with the nodes that are made.

use std::str::FromStr;

use dlock_core::Error;
use zookeeper_client::{Acl as Entry, Acls, AuthId, Permission};

use crate::config::value;

/// Who may do what with the nodes that are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Acl {
    /// Everybody everything.
    Open,
    /// Everything for whoever has the credentials that the node was made with.
    Creator,
    /// These.
    Entries(Vec<Entry>),
}

impl Acl {
    /// As the driver wants it.
    pub(crate) fn for_driver(&self) -> Acls<'_> {
        match self {
            Self::Open => Acls::anyone_all(),
            Self::Creator => Acls::creator_all(),
            Self::Entries(entries) => Acls::new(entries),
        }
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
                         separated by commas, with rights out of rwcda, such as \
                         world:anyone:r,digest:user:hash:rwcda",
                    )
                },
            ),
        }
    }
}

/// `scheme:id:rights`; an id may hold colons.
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
}
