//! What other programs, settings and accidents do to the tables, the connections and the pool.

mod rows;
mod settings;
