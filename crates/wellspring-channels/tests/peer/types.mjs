// Checks requests against the types that the networks' own communities publish. It reads
// TypeScript on stdin, which names the types, and prints what the compiler says of it.
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
