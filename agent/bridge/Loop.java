// SPDX-License-Identifier: Apache-2.0
import java.io.BufferedInputStream;
import java.io.DataOutputStream;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.InputStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import jdk.jshell.EvalException;
import jdk.jshell.JShell;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis;

/** The cells of a Java context, by JShell in this process: agent/bridge/driver.py says how they come. */
public class Loop {
    private static final String[] IMPORTS = {
        "java.io.*", "java.math.*", "java.net.*", "java.nio.file.*", "java.time.*", "java.util.*",
        "java.util.concurrent.*", "java.util.function.*", "java.util.regex.*", "java.util.stream.*",
    };

    private final InputStream to = new BufferedInputStream(new FileInputStream("/proc/self/fd/7"));
    private final DataOutputStream back = new DataOutputStream(new FileOutputStream("/proc/self/fd/8"));
    private final FileOutputStream results = new FileOutputStream("/proc/self/fd/4");
    private final JShell shell = JShell.builder().executionEngine("local").out(System.out).err(System.err).build();
    private final Map<String, String> environment = writableEnvironment();
    private volatile boolean running, interrupted;

    private Loop() throws Exception {
        for (String name : IMPORTS)
            shell.eval("import " + name + ";");
        sun.misc.Signal.handle(new sun.misc.Signal("INT"), signal -> {
            if (running) {
                interrupted = true;
                shell.stop();
            }
        });
    }

    /** What System.getenv() reads, which Java lets nobody change; what children inherit is the same. */
    @SuppressWarnings("unchecked")
    private static Map<String, String> writableEnvironment() throws Exception {
        Field inner = System.getenv().getClass().getDeclaredField("m");

        inner.setAccessible(true);
        return (Map<String, String>) inner.get(System.getenv());
    }

    private String field() throws Exception {
        byte[] head = to.readNBytes(4);

        if (head.length < 4)
            System.exit(0);
        int length = head[0] & 255 | (head[1] & 255) << 8 | (head[2] & 255) << 16 | (head[3] & 255) << 24;
        return new String(to.readNBytes(length), StandardCharsets.UTF_8);
    }

    private void answer(String... fields) throws Exception {
        for (String text : fields) {
            byte[] bytes = text.getBytes(StandardCharsets.UTF_8);

            back.writeInt(Integer.reverseBytes(bytes.length));
            back.write(bytes);
        }
        back.flush();
    }

    private static String json(String text) {
        StringBuilder out = new StringBuilder("\"");

        text.codePoints().forEach(c -> {
            if (c == '"' || c == '\\')
                out.append('\\').appendCodePoint(c);
            else if (c >= 0x20 && c < 0x7f)
                out.append((char) c);
            else if (c == 0 || c >= 0xd800 && c < 0xe000)
                out.append("\\ufffd");
            else
                for (char one : Character.toChars(c))
                    out.append(String.format("\\u%04x", (int) one));
        });
        return out.append('"').toString();
    }

    private static boolean isExpression(Snippet snippet) {
        return switch (snippet.subKind()) {
            case TEMP_VAR_EXPRESSION_SUBKIND, VAR_VALUE_SUBKIND, OTHER_EXPRESSION_SUBKIND, ASSIGNMENT_SUBKIND -> true;
            default -> false;
        };
    }

    private static String[] thrown(EvalException error) {
        String name = error.getExceptionClassName(), message = error.getMessage() == null ? "" : error.getMessage();
        StringBuilder trace = new StringBuilder(name).append(message.isEmpty() ? "" : ": " + message);

        for (StackTraceElement at : error.getStackTrace())
            if (!at.getClassName().startsWith("jdk.") && !at.getClassName().startsWith("java.lang.reflect"))
                trace.append("\n\tat ").append(at.getMethodName()).append(" (").append(at.getFileName()).append(':').append(at.getLineNumber()).append(')');
        return new String[] {name.substring(name.lastIndexOf('.') + 1), message, trace.toString()};
    }

    /** Class, text and traceback of what failed, or null. */
    private String[] run(String code) throws Exception {
        SourceCodeAnalysis analysis = shell.sourceCodeAnalysis();
        String value = null;

        while (!code.isBlank()) {
            SourceCodeAnalysis.CompletionInfo info = analysis.analyzeCompletion(code);
            String source = info.completeness().isComplete() ? info.source() : code;

            value = null;
            for (SnippetEvent event : shell.eval(source)) {
                if (interrupted)
                    return new String[] {"KeyboardInterrupt", "", "KeyboardInterrupt"};
                if (event.causeSnippet() != null)
                    continue; // another snippet's, that this one changes
                if (event.exception() instanceof EvalException)
                    return thrown((EvalException) event.exception());
                if (event.exception() != null)
                    return new String[] {"UnresolvedReference", event.exception().getMessage(), event.exception().toString()};
                if (event.status() == Snippet.Status.REJECTED) {
                    List<String> said = new ArrayList<>();
                    shell.diagnostics(event.snippet()).forEach(one -> said.add(one.getMessage(Locale.ENGLISH)));
                    String text = String.join("\n", said);
                    return new String[] {"CompilationError", text, text + "\n" + event.snippet().source()};
                }
                if (isExpression(event.snippet()))
                    value = event.value();
            }
            code = info.completeness().isComplete() ? info.remaining() : "";
        }
        if (value != null)
            results.write(("{\"type\": \"result\", \"data\": {\"text/plain\": " + json(value) + "}}\n").getBytes(StandardCharsets.US_ASCII));
        return null;
    }

    private void loop() throws Exception {
        answer("ready");
        for (;;) {
            int count = Integer.parseInt(field());
            Map<String, String> before = new HashMap<>();

            for (int i = 0; i < Math.abs(count); i++) {
                String[] pair = field().split("=", 2);
                before.put(pair[0], environment.get(pair[0]));
                environment.put(pair[0], pair[1]);
            }
            String code = field();
            String[] raised = null;
            if (count >= 0) {
                interrupted = false;
                running = true;
                raised = run(code);
                running = false;
                before.forEach((name, value) -> {
                    if (value == null)
                        environment.remove(name);
                    else
                        environment.put(name, value);
                });
            }
            System.out.flush();
            System.err.flush();
            answer(raised == null ? new String[] {"ok", "", ""} : raised);
        }
    }

    public static void main(String[] arguments) throws Exception {
        new Loop().loop();
    }
}
