//! No text shows a password of a URL, whether the password is percent-encoded as it should be, not
//! at all, or in part.

use dlock::{
    backend::{BackendUrl, registry},
    etcd::EtcdConfig,
    mysql::MysqlConfig,
    postgres::PostgresConfig,
    redis::RedisConfig,
    sqlite::SqliteConfig,
    zk::ZkConfig,
};

/// The number of passwords for each form of each scheme.
const TRIES: u32 = 50;

/// The characters that must be percent-encoded in a password, and others that have a meaning.
const SPECIAL: &[char] = &['/', '?', '#', '@', ':', '%', '&', '=', ',', ';', '[', ']', '+', ' '];

/// Returns all texts that show a URL before dlock connects: its errors, and the accepted
/// configuration, in which each store shows its address.
fn shown(text: &str) -> String {
    let url = match text.parse::<BackendUrl>() {
        Ok(url) => url,
        Err(error) => return format!("{error} {error:?}"),
    };
    let mut shown = format!("{url} {url:?} {:?}", url.not_of("a store", &["x"]));
    let registry = registry();
    let factory = match registry.factory(&url) {
        Ok(factory) => factory,
        Err(error) => return shown + &format!("{error} {error:?}"),
    };
    let mut rest = url.clone();
    for option in factory.options.iter().chain(&["lease", "wait", "prefix"]) {
        shown += &format!("{:?}", url.clone().take_duration(option).err());
        rest.take(option);
    }
    shown += &format!("{:?}", rest.finish(factory.options).err());
    shown
        + &match url.scheme().split('+').next().unwrap_or_default() {
            "redis" | "rediss" => format!("{:?}", RedisConfig::from_url(text)),
            "postgres" | "postgresql" => format!("{:?}", PostgresConfig::from_url(&url)),
            "mysql" | "mariadb" => format!("{:?}", MysqlConfig::from_url(&url)),
            "sqlite" => format!("{:?}", SqliteConfig::from_url(&url)),
            "zk" | "zks" => format!("{:?}", ZkConfig::from_url(text)),
            "etcd" | "etcds" => format!("{:?}", EtcdConfig::from_url(text)),
            _ => String::new(),
        }
}

/// Returns a password, and its longest parts without special characters.
fn password(random: &mut Random) -> (String, Vec<String>) {
    let mut parts = Vec::new();
    let mut password = String::new();
    for _ in 0..=random.below(3) {
        // A part that consists of digits looks like a port.
        let alphabet: &[u8] = if random.below(3) == 0 { b"789" } else { b"jkqvwxyz" };
        let part: String =
            (0..4 + random.below(2)).map(|_| char::from(random.pick(alphabet))).collect();
        password += &part;
        password.push(random.pick(SPECIAL));
        parts.push(part);
    }
    if random.below(2) == 0 {
        password.pop();
    }
    (password, parts)
}

/// Percent-encodes each of these characters.
fn encoded(text: &str, which: &[char]) -> String {
    let byte =
        |c: char| if which.contains(&c) { format!("%{:02X}", u32::from(c)) } else { c.into() };
    text.chars().map(byte).collect()
}

#[test]
fn no_text_shows_a_password_of_a_url() {
    let mut random = Random::new(31);
    let schemes = registry().schemes();
    assert_eq!(schemes.len(), 19, "{schemes:?}");
    for scheme in schemes {
        for _ in 0..TRIES {
            let (raw, parts) = password(&mut random);
            let some: Vec<char> =
                SPECIAL.iter().copied().filter(|_| random.below(2) == 0).collect();
            for secret in
                [&raw, &encoded(&raw, &['@']), &encoded(&raw, &some), &encoded(&raw, SPECIAL)]
            {
                // A text before a ? that looks like a host and a port is shown, unless an @
                // follows.
                let without_at = secret.replace('?', "");
                for url in [
                    format!("{scheme}://user:{secret}@localhost:1/x/y"),
                    // A token instead of a user. In the URL of a file, it would be a part of the path.
                    match scheme {
                        "sqlite" => String::new(),
                        _ => format!("{scheme}://{secret}@localhost:1"),
                    },
                    format!("{scheme}://user:{without_at}%40localhost:1/x"),
                    format!("{scheme}://user:{secret}@h1:1,h2:2,h3:3/x"),
                    format!("{scheme}://:{secret}@localhost?dlock.lease=3s"),
                    format!(
                        "{scheme}://user:{secret}@localhost/x?sslmode=disable&ssl-mode=DISABLED"
                    ),
                    format!("{scheme}:user:{secret}@localhost"),
                    format!("{scheme}://localhost/x?user=u&password={secret}"),
                    format!(
                        "{scheme}://s1,s2/x?dlock.sentinel_user=u&dlock.sentinel_password={secret}"
                    ),
                    format!("user:{secret}@localhost:6379"),
                    format!("x{scheme}://user:{secret}@localhost"),
                ] {
                    let shown = shown(&url);
                    for part in &parts {
                        assert!(!shown.contains(part.as_str()), "{url} shows as {shown}");
                    }
                }
            }
        }
    }
}

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}
