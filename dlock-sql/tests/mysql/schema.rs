//! Tables that are incomplete, of another version, or of another program.

use dlock_core::ConfigIssue::{Access, ForeignStore, SchemaMissing, SchemaNewer};
use dlock_sql::{Mysql, MysqlConfig, Scheme};
use dlock_testlab::mariadb::{MariadbServer, Options};
use sqlx::mysql::MySqlPoolOptions;

use crate::support::{config, connect, refused, server, with_mariadb};

#[test]
fn partly_created_tables_are_completed() {
    with_mariadb(async {
        let server = server().await?;
        for sql in ["DROP TABLE dlock_lock", "DELETE FROM dlock_schema", "DROP TABLE dlock_schema"]
        {
            server.run_sql(sql).await?;
            refused(config(&server.url())?, SchemaMissing, "create_schema").await?;
            Mysql::open(config(&server.url())?.with_create_schema(true)).await?;
            connect(&server).await?;
        }
        Ok(())
    });
}

#[test]
fn another_version_is_refused() {
    with_mariadb(async {
        let server = server().await?;
        server.run_sql("UPDATE dlock_schema SET version = 2").await?;
        refused(config(&server.url())?, SchemaNewer, "version 2").await?;
        server.run_sql("UPDATE dlock_schema SET version = 0").await?;
        refused(config(&server.url())?, ForeignStore, "of their own").await
    });
}

#[test]
fn tables_of_another_form_are_refused() {
    with_mariadb(async {
        let server = server().await?;
        for (change, back, remedy) in [
            ("ENGINE = MyISAM", "ENGINE = InnoDB", "run ALTER TABLE dlock_lock ENGINE = InnoDB"),
            ("MODIFY name VARCHAR(255)", "MODIFY name VARBINARY(512)", "of their own"),
            ("DROP PRIMARY KEY", "ADD PRIMARY KEY (name)", "of their own"),
            ("ADD mine INT NOT NULL", "DROP mine", "of their own"),
            ("MODIFY log TEXT", "MODIFY log MEDIUMBLOB NOT NULL", "of their own"),
        ] {
            server.run_sql(&format!("ALTER TABLE dlock_lock {change}")).await?;
            let config = config(&server.url())?.with_create_schema(true);
            refused(config, ForeignStore, remedy).await?;
            server.run_sql(&format!("ALTER TABLE dlock_lock {back}")).await?;
        }
        server.run_sql("DROP TABLE dlock_schema; CREATE TABLE dlock_schema (x INT)").await?;
        refused(config(&server.url())?, ForeignStore, "of their own").await
    });
}

/// A view can call functions, with the rights of the user that reads from it.
#[test]
fn views_of_another_user_are_refused_and_never_read() {
    with_mariadb(async {
        for (view, scheme) in
            [("dlock_schema", None), ("dlock_lock", None), ("dlock_plain", Some(Scheme::Row))]
        {
            let server = MariadbServer::start(&Options::new()).await?;
            let mallory = "CREATE USER mallory@'%' IDENTIFIED BY 'secret'; \
                           GRANT CREATE, CREATE VIEW, CREATE ROUTINE, EXECUTE, SELECT, INSERT \
                           ON dlock.* TO mallory@'%'; \
                           CREATE TABLE trap (x INT)";
            server.run_sql(mallory).await?;
            let views = format!(
                "CREATE FUNCTION ran() RETURNS INT SQL SECURITY INVOKER MODIFIES SQL DATA BEGIN \
                 INSERT INTO trap VALUES (1); RETURN 1; END; \
                 CREATE SQL SECURITY INVOKER VIEW {view} AS SELECT ran() AS id, ran() AS version, \
                 ran() AS name, ran() AS base"
            );
            server.query_at(&server.url_of("mallory", "secret", "dlock"), &views).await?;
            for create in [true, false] {
                let config = config(&server.url())?.with_create_schema(create);
                let config = scheme.map_or(config.clone(), |scheme| config.with_plain(scheme));
                refused(config, ForeignStore, "is a view").await?;
            }
            let ran = server.query("SELECT COUNT(*) FROM trap").await?;
            assert_eq!(ran.concat(), ["0"], "{view}");
            // The trap works.
            server.query_at(&server.url(), &format!("SELECT * FROM {view}")).await?;
            assert_ne!(server.query("SELECT COUNT(*) FROM trap").await?.concat(), ["0"]);
        }
        Ok(())
    });
}

/// A session of the pool sees another table than dlock's connections.
#[test]
fn a_version_in_a_temporary_table_does_not_count() {
    with_mariadb(async {
        let server = server().await?;
        server.run_sql("UPDATE dlock_schema SET version = 2").await?;
        let hides = "CREATE TEMPORARY TABLE dlock_schema (id INT PRIMARY KEY, version BIGINT) \
                     SELECT 1 AS id, 1 AS version";
        let pool = MySqlPoolOptions::new().max_connections(2).after_connect(move |conn, _| {
            Box::pin(async move { sqlx::raw_sql(hides).execute(conn).await.map(drop) })
        });
        let config = MysqlConfig::from_pool(pool.connect(&server.url()).await?)?;
        refused(config, SchemaNewer, "version 2").await
    });
}

#[test]
fn a_missing_right_to_create_tables_is_reported() {
    with_mariadb(async {
        let server = MariadbServer::start(&Options::new()).await?;
        let sql = "CREATE USER reader@'%' IDENTIFIED BY 'secret'; \
                   GRANT SELECT, INSERT, UPDATE, DELETE ON dlock.* TO reader@'%'";
        server.run_sql(sql).await?;
        let config = config(&server.url_of("reader", "secret", "dlock"))?;
        refused(config.with_create_schema(true), Access, "CREATE").await
    });
}
