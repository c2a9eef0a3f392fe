//! The modes in which other programs take part: the plain table schemes, and PostgreSQL's advisory
//! locks, each against a program that knows nothing of dlock and speaks SQL.

mod advisory;
mod idle_sessions;
mod plain;
mod support;
