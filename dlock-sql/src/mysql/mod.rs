//! MySQL and MariaDB.
