import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.Statement;

/**
 * Executes HiveQL in a Hive that is embedded in this process. Each argument is a file with one statement a line. Each file
 * has a session of its own, which ends with its file. The program prints "SESSION" when a session begins, and "ROW" and the
 * columns, separated by tabs, for each row of a result.
 */
public final class Statements {
  private Statements() {}

  public static void main(String[] files) {
    try {
      for (String file : files) {
        System.out.println("SESSION");
        try (Connection session = DriverManager.getConnection("jdbc:hive2:///", "", "")) {
          for (String text : Files.readAllLines(Path.of(file))) {
            try (Statement statement = session.createStatement()) {
              if (statement.execute(text)) {
                print(statement.getResultSet());
              }
            }
          }
        }
      }
      System.exit(0); // the embedded services have threads that do not end
    } catch (Throwable t) {
      t.printStackTrace();
      System.exit(1);
    }
  }

  private static void print(ResultSet rows) throws Exception {
    int columns = rows.getMetaData().getColumnCount();
    while (rows.next()) {
      StringBuilder line = new StringBuilder("ROW");
      for (int i = 1; i <= columns; i++) {
        line.append('\t').append(rows.getString(i));
      }
      System.out.println(line);
    }
  }
}
