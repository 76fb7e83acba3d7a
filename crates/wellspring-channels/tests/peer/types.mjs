// Checks requests against published types of the networks' APIs. It reads TypeScript that names
// the types on stdin, and prints the compiler's errors.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const packages = join(dirname(fileURLToPath(import.meta.url)), "node_modules");
const folder = mkdtempSync(join(tmpdir(), "wellspring-types-"));
try {
  symlinkSync(packages, join(folder, "node_modules"));
  writeFileSync(join(folder, "requests.mts"), readFileSync(0));
  const options = ["--noEmit", "--strict", "--skipLibCheck"];
  const modules = ["--module", "nodenext", "--moduleResolution", "nodenext"];
  const tsc = join(packages, ".bin", "tsc");
  const checked = spawnSync(tsc, [...options, ...modules, "requests.mts"], { cwd: folder });
  process.stdout.write(checked.stdout);
  process.exitCode = checked.status ?? 1;
} finally {
  rmSync(folder, { recursive: true });
}
