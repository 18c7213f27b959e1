package penstock.agent;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.jar.asm.ClassReader;
import net.bytebuddy.jar.asm.ClassWriter;
import net.bytebuddy.jar.asm.Opcodes;
import net.bytebuddy.jar.asm.commons.ClassRemapper;
import net.bytebuddy.jar.asm.commons.Remapper;

/**
 * Makes a valid Hadoop class that the agent does not support, as a future release might have: a private method or field
 * is renamed, in its declaration and in all uses in the class.
 */
final class Doctored {
    private Doctored() { }

    /** Writes a jar that contains only the changed class, for the front of a class path. */
    static String jar(Path file, String type, String member) throws IOException {
        String internal = type.replace('.', '/');
        byte[] code = ClassFileLocator.ForClassLoader.of(Doctored.class.getClassLoader()).locate(type).resolve();
        ClassWriter out = new ClassWriter(0);
        new ClassReader(code).accept(new ClassRemapper(out, new Remapper(Opcodes.ASM9) {
            @Override
            public String mapMethodName(String owner, String name, String descriptor) {
                return renamed(owner, name);
            }

            @Override
            public String mapFieldName(String owner, String name, String descriptor) {
                return renamed(owner, name);
            }

            private String renamed(String owner, String name) {
                return owner.equals(internal) && name.equals(member) ? name + "2" : name;
            }
        }), 0);
        try (JarOutputStream jar = new JarOutputStream(Files.newOutputStream(file))) {
            jar.putNextEntry(new JarEntry(internal + ".class"));
            jar.write(out.toByteArray());
            jar.closeEntry();
        }
        return file.toString();
    }
}
